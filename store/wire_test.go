package store

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// every has one request of each operation of a dialect.
func every(d Dialect) []request {
	k, v := []string{"/k"}, [][]byte{[]byte("value")}
	list := []request{
		{op: opSet, keys: k, values: v}, {op: opCompareSet, keys: k, values: [][]byte{{}, []byte("new")}},
		{op: opGet, keys: k}, {op: opAdd, keys: k, number: -2}, {op: opCheck, keys: []string{"/a", ""}},
		{op: opWait, keys: []string{"/a"}}, {op: opNumKeys}, {op: opDelete, keys: k},
	}
	if d == DialectS0 {
		return append(list, request{op: opWatch, keys: k})
	}
	return append(list,
		request{op: opValidate, nonce: validateMagic}, request{op: opAppend, keys: k, values: v},
		request{op: opMultiGet, keys: []string{"/a", "/b"}},
		request{op: opMultiSet, keys: []string{"/a", "/b"}, values: [][]byte{{1}, {}}},
		request{op: opCancelWait}, request{op: opPing, nonce: 7}, request{op: opQueuePush, keys: k, values: v},
		request{op: opQueuePop, keys: k}, request{op: opQueueLen, keys: k}, request{op: opListKeys},
		request{op: opBarrier, keys: k, number: 4})
}

func TestRequestRoundTrip(t *testing.T) {
	for _, d := range []Dialect{DialectS0, DialectS1} {
		for _, r := range every(d) {
			b, ok := r.append(nil, d)
			if !ok {
				t.Fatalf("%v: no %v", d, r.op)
			}
			in := newWireReader(bytes.NewReader(b), Limits{})
			got, err := in.request(d)
			if err != nil || !reflect.DeepEqual(got, r) {
				t.Errorf("%v: %+v came back as %+v, %v", d, r, got, err)
			}
			if _, err := in.u8(); err != io.EOF {
				t.Errorf("%v: %v left bytes over", d, r.op)
			}
			for n := 1; n < len(b); n++ {
				if _, err := newWireReader(bytes.NewReader(b[:n]), Limits{}).request(d); !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("%v: %v cut at %d: %v", d, r.op, n, err)
				}
			}
		}
	}
	if _, ok := (&request{op: opAppend, keys: []string{""}, values: [][]byte{nil}}).append(nil, DialectS0); ok {
		t.Error("S0 has no append")
	}
}

func TestLimits(t *testing.T) {
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	for name, message := range map[string][]byte{
		"key":            append([]byte{1}, huge...),
		"value":          append(appendString([]byte{1}, "k"), huge...),
		"keys":           append([]byte{5}, huge...),
		"pairs":          append([]byte{11}, huge...),
		"key of 8 KiB+1": appendU64([]byte{3}, defaultMaxKey+1),
	} {
		_, err := newWireReader(bytes.NewReader(message), Limits{}).request(DialectS1)
		if err == nil || !strings.Contains(err.Error(), "exceeds the limit") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A length within the limits that is a lie costs what has arrived.
	lie := appendU64(appendString([]byte{1}, "k"), defaultMaxValue)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const rounds = 20
	for range rounds {
		newWireReader(bytes.NewReader(lie), Limits{}).request(DialectS1)
	}
	runtime.ReadMemStats(&after)
	if got := (after.TotalAlloc - before.TotalAlloc) / rounds; got > 4*chunk {
		t.Errorf("a lie of %d bytes made the server allocate %d", defaultMaxValue, got)
	}
}

// A line of a conversation with a server: what is sent, and what must come back.
type line struct{ send, want string }

func u64(n byte) string { return string([]byte{n, 0, 0, 0, 0, 0, 0, 0}) }
func str(s string) string {
	return u64(byte(len(s))) + s
}

// The conversations are those of PyTorch's clients, byte by byte.
var conversations = map[string][]line{
	// A client of PyTorch 1.13 with a world size, then calls of its interface.
	"S0": {
		{"\x03" + str("init/") + u64(1), u64(1)},                      // ADD
		{"\x00" + str("/k") + str("value"), ""},                       // SET
		{"\x05" + u64(1) + str("/k"), "\x00"},                         // WAIT
		{"\x02" + str("/k"), str("value")},                            // GET
		{"\x03" + str("/n") + u64(5), u64(5)},                         // ADD
		{"\x02" + str("/n"), str("5")},                                // GET
		{"\x01" + str("/k") + str("value") + str("2"), str("2")},      // COMPARE_SET
		{"\x01" + str("/k") + str("wrong") + str("3"), str("2")},      // COMPARE_SET
		{"\x01" + str("/no") + str("lie") + str("3"), str("lie")},     // COMPARE_SET
		{"\x01" + str("/new") + str("") + str("first"), str("first")}, // COMPARE_SET
		{"\x04" + u64(2) + str("/k") + str("/n"), "\x00"},             // CHECK
		{"\x04" + u64(2) + str("/k") + str("/no"), "\x01"},            // CHECK
		{"\x06", u64(4)},             // GETNUMKEYS
		{"\x08" + str("/k"), u64(1)}, // DELETE_KEY
		{"\x08" + str("/k"), u64(0)}, // DELETE_KEY
		{"\x07" + str("/w"), "\x03"}, // WATCH_KEY
		{"\x00" + str("/w") + str("a"), "\x01" + str("/w") + str("") + str("a")},
		{"\x00" + str("/w") + str("b"), "\x00" + str("/w") + str("a") + str("b")},
		{"\x08" + str("/w"), "\x02" + str("/w") + str("b") + str("") + u64(1)},
	},
	// A client of PyTorch 2.
	"S1": {
		{"\x00\xce\xf7\x85\x3c\x0d\x39\x30\x00\x00", "\x39\x30\x00\x00"}, // VALIDATE, PING
		{"\x04" + str("init/") + u64(1), u64(1)},                         // ADD
		{"\x01" + str("/k") + str("value"), ""},                          // SET
		{"\x06" + u64(1) + str("/k"), "\x00"},                            // WAIT
		{"\x03" + str("/k"), str("value")},                               // GET
		{"\x02" + str("/k") + str("value") + str("2"), str("2")},         // COMPARE_SET
		{"\x04" + str("/n") + "\xfe\xff\xff\xff\xff\xff\xff\xff", "\xfe\xff\xff\xff\xff\xff\xff\xff"},
		{"\x03" + str("/n"), str("-2")},
		{"\x05" + u64(1) + str("/no"), "\x01"},                                                // CHECK
		{"\x07", u64(3)},                                                                      // GETNUMKEYS
		{"\x08" + str("/n"), u64(1)},                                                          // DELETE_KEY
		{"\x09" + str("/k") + str("+"), ""},                                                   // APPEND
		{"\x0b" + u64(2) + str("/a") + str("1") + str("/b") + str(""), ""},                    // MULTI_SET
		{"\x0a" + u64(3) + str("/b") + str("/a") + str("/k"), str("") + str("1") + str("2+")}, // MULTI_GET
		{"\x06" + u64(1) + str("/never") + "\x0c", "\x01"},                                    // WAIT, CANCEL_WAIT
		{"\x0e" + str("/q") + str("x"), ""},                                                   // QUEUE_PUSH
		{"\x10" + str("/q"), u64(1)},                                                          // QUEUE_LEN
		{"\x0f" + str("/q"), u64(1) + str("x")},                                               // QUEUE_POP
		{"\x0f" + str("/q"), u64(0)},                                                          // QUEUE_POP
		{"\x06" + u64(1) + str("/k") + "\x0c", "\x00\x01"},                                    // WAIT that was fulfilled, CANCEL_WAIT
		{"\x11", u64(4) + str("/a") + str("/b") + str("/k") + str("init/")},                   // LIST_KEYS
		{"\x12" + str("/gate") + u64(1), "\x00"},                                              // BARRIER
	},
}

func TestTranscripts(t *testing.T) {
	for dialect, conversation := range conversations {
		for _, serve := range []Dialect{DialectDefault, DialectS0, DialectS1} {
			if serve != DialectDefault && serve.String() != dialect {
				continue
			}
			t.Run(dialect+"/"+serve.String(), func(t *testing.T) {
				c := connect(t, serveOn(t, ServerOptions{Dialect: serve}))
				for i, l := range conversation {
					if _, err := io.WriteString(c, l.send); err != nil {
						t.Fatalf("line %d: %v", i, err)
					}
					got := make([]byte, len(l.want))
					if _, err := io.ReadFull(c, got); err != nil || string(got) != l.want {
						t.Fatalf("line %d: sent %q, got %q, %v, want %q", i, l.send, got, err, l.want)
					}
				}
				// Nothing but the answer to one more request is left.
				count := "\x07"
				if dialect == "S0" {
					count = "\x06"
				}
				io.WriteString(c, count)
				got := make([]byte, 8)
				if _, err := io.ReadFull(c, got); err != nil || string(got[1:]) != u64(0)[1:] || got[0] > 9 {
					t.Errorf("the server sent more than it should: %q, %v", got, err)
				}
			})
		}
	}
}

func isTimeout(err error) bool {
	ne, ok := errors.AsType[net.Error](err)
	return ok && ne.Timeout()
}

// serveOn serves on loopback until the test ends and returns the address.
func serveOn(t testing.TB, opts ServerOptions) string {
	t.Helper()
	s, err := ListenTCP("127.0.0.1:0", opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s.Addr().String()
}

// connect opens a connection whose reads give up after half a second.
func connect(t testing.TB, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return impatient{c}
}

type impatient struct{ net.Conn }

func (c impatient) Read(b []byte) (int, error) {
	c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	return c.Conn.Read(b)
}

// A server that is told its dialect refuses the other one, and any server what is
// neither.
func TestRefused(t *testing.T) {
	hello := "\x00\xce\xf7\x85\x3c\x0d\xff\xff\xff\xff"
	set := "\x00" + str("/k") + str("v") + "\x06"
	for name, test := range map[string]struct {
		dialect Dialect
		send    string
	}{
		"S1 by a server of S0":    {DialectS0, hello},
		"S0 by a server of S1":    {DialectS1, set},
		"wrong magic":             {DialectDefault, "\x00\xce\xf7\x85\x3d\x00\x00\x00\x00"},
		"HTTP":                    {DialectDefault, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
		"TLS":                     {DialectDefault, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"},
		"unknown operation":       {DialectDefault, hello + "\x63"},
		"unknown operation of S0": {DialectDefault, "\x09"},
		"an append on S0":         {DialectDefault, "\x09" + str("/k") + str("v")},
		"add to what is no number": {DialectDefault,
			"\x00" + str("/k") + str("v") + "\x03" + str("/k") + u64(1)},
	} {
		t.Run(name, func(t *testing.T) {
			addr := serveOn(t, ServerOptions{Dialect: test.dialect})
			c := connect(t, addr)
			io.WriteString(c, test.send)
			rest, err := io.ReadAll(c)
			if isTimeout(err) {
				t.Fatalf("the connection stays open after %q", rest)
			}
			// The server lives, and serves others.
			opts := TCPOptions{Dialect: test.dialect}
			st, err := DialTCP(t.Context(), addr, opts)
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			if err := st.Set(t.Context(), "k", nil); err != nil {
				t.Error(err)
			}
		})
	}
}

func FuzzRequest(f *testing.F) {
	for _, d := range []Dialect{DialectS0, DialectS1} {
		var all []byte
		for _, r := range every(d) {
			b, _ := r.append(nil, d)
			f.Add(d == DialectS0, b)
			all = append(all, b...)
		}
		f.Add(d == DialectS0, all)
	}
	f.Add(false, bytes.Repeat([]byte{0xff}, 64))
	f.Fuzz(func(t *testing.T, s0 bool, data []byte) {
		d := DialectS1
		if s0 {
			d = DialectS0
		}
		in := newWireReader(bytes.NewReader(data), Limits{})
		var again []byte
		for {
			r, err := in.request(d)
			if err != nil {
				break
			}
			again, _ = r.append(again, d)
		}
		if !bytes.HasPrefix(data, again) { // what was understood is what was said
			t.Fatalf("%q was read as %q", data, again)
		}
	})
}

// FuzzServer sends anything to a whole connection.
func FuzzServer(f *testing.F) {
	for _, conversation := range conversations {
		var all string
		for _, l := range conversation {
			all += l.send
		}
		f.Add([]byte(all))
	}
	f.Add([]byte("\x00\xce\xf7\x85\x3c\x12" + str("g") + u64(9) + "\x12" + str("g") + u64(0) + "\x06" + u64(1) + str("x")))
	f.Fuzz(func(t *testing.T, data []byte) {
		ours, theirs := net.Pipe()
		s := &TCPServer{table: newTable()}
		s.ctx, s.stop = context.WithCancel(context.Background())
		defer s.stop()
		c := newServerConn(s, theirs)
		served := make(chan struct{})
		go func() {
			defer close(served)
			c.serve(s.limiter.Add(theirs))
			c.end()
		}()
		read := make(chan struct{})
		go func() {
			defer close(read)
			io.Copy(io.Discard, ours)
		}()
		ours.Write(data)
		ours.Close()
		<-served
		<-read
		s.serving.Wait()
		if n := len(s.table.waiters) + len(s.table.parked) + len(s.table.watchers); n != 0 {
			t.Fatalf("%d entries of a connection that has gone stay behind", n)
		}
	})
}

func FuzzFileLog(f *testing.F) {
	log := appendRecord(appendRecord(nil, "/k", []byte("v")), "-/k", nil)
	f.Add(log)
	f.Add(log[:len(log)-1])
	f.Add(appendRecord(log, "refcount/", []byte("1")))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0})
	f.Fuzz(func(t *testing.T, log []byte) {
		values := map[string][]byte{}
		n, bad := replay(values, log)
		if n < 0 || n > len(log) {
			t.Fatalf("%d of %d bytes", n, len(log))
		}
		var again []byte
		for len(again) < n {
			key, value, _, err := nextRecord(log[len(again):])
			if err != nil {
				t.Fatal(err)
			}
			again = appendRecord(again, string(key), value)
		}
		if !bytes.Equal(again, log[:n]) {
			t.Fatalf("%q was read as %q", log[:n], again)
		}
		if n < len(log) {
			if _, _, _, err := nextRecord(log[n:]); err == nil || (err == errNotLog) != (bad != nil) {
				t.Fatalf("what is left: %v, and replay says %v", err, bad)
			}
		}
	})
}

// TestTableModel compares waiting with its definition, over random sequences of
// operations: a wait ends when each key that was missing at its beginning has
// been there at least once since.
func TestTableModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type wait struct {
			w     *waiter
			needs map[string]bool
			woken bool
		}
		table := newTable()
		present := map[string]bool{}
		var waits []*wait
		key := rapid.SampledFrom([]string{"a", "b", "c"})
		set := func(k string) {
			table.set(k, nil)
			present[k] = true
			for _, w := range waits {
				delete(w.needs, k)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) { set(key.Draw(t, "key")) },
			"delete": func(t *rapid.T) {
				k := key.Draw(t, "key")
				if table.remove(k) != present[k] {
					t.Fatal("delete")
				}
				delete(present, k)
			},
			"wait": func(t *rapid.T) {
				w := &wait{needs: map[string]bool{}}
				keys := rapid.SliceOfN(key, 1, 4).Draw(t, "keys")
				for _, k := range keys {
					if !present[k] {
						w.needs[k] = true
					}
				}
				w.w = table.wait(keys, func() { w.woken = true })
				if (w.w == nil) != (len(w.needs) == 0) {
					t.Fatal("wait")
				}
				if w.w != nil {
					waits = append(waits, w)
				}
			},
			"cancel": func(t *rapid.T) {
				if len(waits) > 0 {
					i := rapid.IntRange(0, len(waits)-1).Draw(t, "which")
					table.cancel(waits[i].w)
					waits = append(waits[:i:i], waits[i+1:]...)
				}
			},
			"": func(t *rapid.T) {
				for _, w := range waits {
					if w.woken != (len(w.needs) == 0) {
						t.Fatalf("needs %v, woken: %v", w.needs, w.woken)
					}
				}
			},
		})
		for _, w := range waits {
			table.cancel(w.w)
		}
		if len(table.waiters) != 0 {
			t.Fatalf("left behind: %v", table.waiters)
		}
	})
}
