package hosts

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/launch"
)

func TestParseHosts(t *testing.T) {
	for text, want := range map[string][]Host{
		"a:2,b:3":                     {{"a", 2}, {"b", 3}},
		"a,b":                         {{"a", 0}, {"b", 0}},
		"a,b,a":                       {{"a", 2}, {"b", 0}},
		"me@a.example:4":              {{"me@a.example", 4}},
		"::1,[fe80::1%eth0]:2, [::2]": {{"::1", 0}, {"fe80::1%eth0", 2}, {"::2", 0}},
	} {
		if got, err := ParseHosts(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "a,,b", "a:", "a:0", "a:-1", "a:x", "a:99999999", "-oProxyCommand=x", "me@-a", "@a",
		"a b", "a;b", "$(x)", "[::1", "[::1]x", "[::1]:", "a/b", "a@b@c", "a\nb"} {
		if got, err := ParseHosts(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// TestHostfileOfMany reads as many names as there may be, which takes no longer for each than few.
func TestHostfileOfMany(t *testing.T) {
	var text strings.Builder
	for i := range maxListed {
		fmt.Fprintf(&text, "node%d\n", i)
	}
	text.WriteString("node1 slots=3\n")
	got, err := ParseHostfile(text.String())
	if err != nil || len(got) != maxListed || got[1] != (Host{"node1", 4}) {
		t.Errorf("%d hosts, %v", len(got), err)
	}
	if _, err := ParseHostfile(text.String() + "one-more\n"); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Error(err)
	}
}

func TestParseHostfile(t *testing.T) {
	text := "# our hosts\n\na slots = 2 # the first\nb:3\r\n c max_slots= 4 slots\t=4\nd\na slots=1\n"
	want := []Host{{"a", 3}, {"b", 3}, {"c", 4}, {"d", 0}}
	if got, err := ParseHostfile(text); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for text, want := range map[string]string{
		"# none\n":                "no host",
		"a\nb slots=0":            "line 2: ",
		"a slots=2 cores=4":       `"cores=4"`,
		"a:2 slots=2":             "twice",
		"a slots =":               `"slots="`,
		"a = 2":                   "no name of a host",
		"a slots=3 max_slots=2\n": "max_slots=2",
		"-x slots=1":              "no name of a host",
	} {
		if _, err := ParseHostfile(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzParseHostfile(f *testing.F) {
	f.Add("a slots=2\nb:3 # x\n[::1]:4\nuser@c max_slots=2")
	f.Fuzz(func(t *testing.T, text string) {
		hosts, err := ParseHostfile(text)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, h := range hosts {
			if checkHost(h.Name) != nil || seen[h.Name] || h.Slots < 0 || h.Slots > launch.MaxRanksPerNode {
				t.Errorf("%q: %+v", text, hosts)
			}
			seen[h.Name] = true
		}
	})
}

// FuzzHostFrames reads what a host sends, whatever it is.
func FuzzHostFrames(f *testing.F) {
	f.Add(appendFrame([]byte("motd\n"+frameMagic), frameStdout, []byte("x\n")))
	f.Add([]byte(frameMagic + "E\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bufio.NewReader(bytes.NewReader(data))
		if _, err := awaitMagic(r); err != nil {
			return
		}
		for {
			fr, err := readFrame(r)
			if err != nil {
				return
			}
			if len(fr.data) > len(data) {
				t.Error("more than there was")
			}
		}
	})
}

func TestFrames(t *testing.T) {
	var b bytes.Buffer
	w := &frameWriter{w: &b}
	for _, text := range []string{"", "one\n", strings.Repeat("x", 1<<20)} {
		if err := w.write(frameStdout, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	r := bufio.NewReader(&b)
	for _, want := range []string{"", "one\n", strings.Repeat("x", 1<<20)} {
		if f, err := readFrame(r); err != nil || f.kind != frameStdout || string(f.data) != want {
			t.Errorf("%d bytes, %v", len(f.data), err)
		}
	}
	if _, err := readFrame(r); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

func TestShellQuoted(t *testing.T) {
	for word, want := range map[string]string{
		"/opt/chorus": "/opt/chorus", "a b": "'a b'", "it's": `'it'\''s'`, "": "''",
	} {
		if got := shellQuoted(word); got != want {
			t.Errorf("%s: %s", word, got)
		}
	}
}
