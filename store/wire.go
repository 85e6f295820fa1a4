package store

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/chorus-comms/chorus/internal/wire"
)

// Dialect is a version of the wire protocol of PyTorch's TCPStore.
type Dialect uint8

const (
	// DialectDefault is S1 for a client, and S0 where a server doesn't know S1; a server finds out for each connection.
	DialectDefault Dialect = iota
	// DialectS0 is that of PyTorch up to 2.0: no greeting, no way to give up a
	// wait (the connection is dropped instead), none of the extended operations.
	DialectS0
	// DialectS1 is that of PyTorch from 2.2 on. It begins with VALIDATE.
	DialectS1
	// DialectProbe lets a client find out by a connection of its own, which an
	// S1 server answers and an S0 server closes.
	DialectProbe
)

func (d Dialect) String() string {
	switch d {
	case DialectS0:
		return "S0"
	case DialectS1:
		return "S1"
	case DialectProbe:
		return "probe"
	default:
		return "default"
	}
}

// An opcode has the value that dialect S1 gives it; S0 knows some of them under
// other values.
type opcode uint8

const (
	opValidate opcode = iota
	opSet
	opCompareSet
	opGet
	opAdd
	opCheck
	opWait
	opNumKeys
	opDelete
	opAppend
	opMultiGet
	opMultiSet
	opCancelWait
	opPing
	opQueuePush
	opQueuePop
	opQueueLen
	opListKeys
	opBarrier
	opWatch // S0 only
)

// s0Codes lists the operations of S0 by their value there.
var s0Codes = [...]opcode{opSet, opCompareSet, opGet, opAdd, opCheck, opWait, opNumKeys, opWatch, opDelete}

var opNames = [...]string{"validate", "set", "compare_set", "get", "add", "check", "wait", "num_keys", "delete",
	"append", "multi_get", "multi_set", "cancel_wait", "ping", "queue_push", "queue_pop", "queue_len", "list_keys",
	"barrier", "watch_key"}

func (op opcode) String() string { return opNames[op] }

// encode returns the byte for op in dialect d.
func (d Dialect) encode(op opcode) (byte, bool) {
	if d != DialectS0 {
		return byte(op), op != opWatch
	}
	for code, o := range s0Codes {
		if o == op {
			return byte(code), true
		}
	}
	return 0, false
}

// decode is the inverse of encode.
func (d Dialect) decode(code byte) (opcode, bool) {
	if d != DialectS0 {
		return opcode(code), opcode(code) < opWatch
	}
	if int(code) < len(s0Codes) {
		return s0Codes[code], true
	}
	return 0, false
}

const (
	validateMagic = 0x3C85F7CE // follows VALIDATE

	replyReady      = 0 // CHECK, and the end of WAIT and BARRIER
	replyNotReady   = 1 // CHECK
	replyCancelled  = 1 // CANCEL_WAIT
	replyWatching   = 3 // WATCH_KEY
	initKey         = "init/"
	greetingLen     = 5
	chunk           = 64 << 10 // of answers that are written together, and of a buffer that is kept
	defaultMaxKey   = 8 << 10
	defaultMaxValue = 8 << 20
	serverMaxValue  = 256 << 20 // of a value that a server takes, and a client accepts from one
	defaultMaxKeys  = 128 << 10
	maxRequest      = 256 << 20 // bytes of all keys or of all values in one request
)

// Limits bounds what a peer may announce. A zero field means the limit that
// PyTorch's own server has, but for the values that a server takes. A client refuses to send what
// exceeds a limit; a server ends the connection.
type Limits struct {
	Key   int // bytes of a key: 8 KiB
	Value int // bytes of a value: 8 MiB; of one that a server takes, and a client is given, 256 MiB
	Keys  int // keys in one request: 131072
}

func (l Limits) orDefault() Limits {
	if l.Key <= 0 {
		l.Key = defaultMaxKey
	}
	if l.Value <= 0 {
		l.Value = defaultMaxValue
	}
	if l.Keys <= 0 {
		l.Keys = defaultMaxKeys
	}
	return l
}

var errTooLarge = &limitError{fmt.Sprintf("more than %d bytes in one request", maxRequest)}

// A request is one message of a client.
type request struct {
	op     opcode
	keys   []string // one for most operations
	values [][]byte // SET, APPEND, QUEUE_PUSH: 1; COMPARE_SET: expected, desired; MULTI_SET: one a key
	number int64    // ADD: delta; BARRIER: size
	nonce  uint32   // PING, VALIDATE
}

func appendU64(b []byte, n uint64) []byte { return binary.LittleEndian.AppendUint64(b, n) }

func appendString[T string | []byte](b []byte, s T) []byte {
	return append(appendU64(b, uint64(len(s))), s...)
}

// append encodes r in dialect d. It is the inverse of read.
func (r *request) append(b []byte, d Dialect) ([]byte, bool) {
	code, ok := d.encode(r.op)
	if !ok {
		return b, false
	}
	b = append(b, code)
	switch r.op {
	case opValidate, opPing:
		b = binary.LittleEndian.AppendUint32(b, r.nonce)
	case opCheck, opWait, opMultiGet:
		b = appendU64(b, uint64(len(r.keys)))
		for _, k := range r.keys {
			b = appendString(b, k)
		}
	case opMultiSet:
		b = appendU64(b, uint64(len(r.keys)))
		for i, k := range r.keys {
			b = appendString(appendString(b, k), r.values[i])
		}
	case opNumKeys, opCancelWait, opListKeys:
	default:
		b = appendString(b, r.keys[0])
		for _, v := range r.values {
			b = appendString(b, v)
		}
		if r.op == opAdd || r.op == opBarrier {
			b = appendU64(b, uint64(r.number))
		}
	}
	return b, true
}

// A wireReader reads messages and believes no length before it has checked it.
type wireReader struct {
	r      *bufio.Reader
	limits Limits
	small  [8]byte
}

func newWireReader(r io.Reader, limits Limits) *wireReader {
	return &wireReader{r: bufio.NewReader(r), limits: limits.orDefault()}
}

func (w *wireReader) u8() (byte, error) { return w.r.ReadByte() }

func (w *wireReader) u32() (uint32, error) {
	_, err := io.ReadFull(w.r, w.small[:4])
	return binary.LittleEndian.Uint32(w.small[:4]), err
}

func (w *wireReader) u64() (uint64, error) {
	_, err := io.ReadFull(w.r, w.small[:8])
	return binary.LittleEndian.Uint64(w.small[:8]), err
}

func (w *wireReader) i64() (int64, error) {
	n, err := w.u64()
	return int64(n), err
}

// length reads a count and refuses one above limit.
func (w *wireReader) length(limit int, what string) (int, error) {
	n, err := w.u64()
	if err != nil {
		return 0, err
	}
	if n > uint64(limit) {
		return 0, &limitError{fmt.Sprintf("%s of %d exceeds the limit of %d", what, n, limit)}
	}
	return int(n), nil
}

// limitError says that a peer has announced more than is permitted.
type limitError struct{ text string }

func (e *limitError) Error() string { return e.text }

// bytes reads a value. Memory grows with what arrives, not with what is
// announced.
func (w *wireReader) bytes(limit int, what string) ([]byte, error) {
	n, err := w.length(limit, what)
	if err != nil {
		return nil, err
	}
	return wire.ReadN(w.r, n)
}

func (w *wireReader) key() (string, error) {
	b, err := w.bytes(w.limits.Key, "key length")
	return string(b), err
}

func (w *wireReader) value() ([]byte, error) { return w.bytes(w.limits.Value, "value length") }

func (w *wireReader) keys() ([]string, error) {
	n, err := w.length(w.limits.Keys, "number of keys")
	if err != nil {
		return nil, err
	}
	keys := make([]string, 0, min(n, 1024))
	total := 0
	for range n {
		k, err := w.key()
		if err != nil {
			return nil, err
		}
		if total += len(k); total > maxRequest {
			return nil, errTooLarge
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// request reads one message of dialect d.
func (w *wireReader) request(d Dialect) (request, error) {
	code, err := w.u8()
	if err != nil {
		return request{}, err
	}
	op, ok := d.decode(code)
	if !ok {
		return request{}, fmt.Errorf("unknown operation %d in dialect %v", code, d)
	}
	r := request{op: op}
	if err := w.arguments(&r); err != nil {
		return r, fmt.Errorf("%v: %w", op, noEOF(err))
	}
	return r, nil
}

// noEOF makes the end of input within a message an error of its own.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (w *wireReader) arguments(r *request) (err error) {
	switch r.op {
	case opValidate, opPing:
		r.nonce, err = w.u32()
		return err
	case opCheck, opWait, opMultiGet:
		r.keys, err = w.keys()
		return err
	case opMultiSet:
		return w.pairs(r)
	case opNumKeys, opCancelWait, opListKeys:
		return nil
	}
	key, err := w.key()
	if err != nil {
		return err
	}
	r.keys = []string{key}
	values := 0
	switch r.op {
	case opSet, opAppend, opQueuePush:
		values = 1
	case opCompareSet:
		values = 2
	case opAdd, opBarrier:
		r.number, err = w.i64()
		return err
	}
	for range values {
		v, err := w.value()
		if err != nil {
			return err
		}
		r.values = append(r.values, v)
	}
	return nil
}

// pairs reads the arguments of MULTI_SET.
func (w *wireReader) pairs(r *request) error {
	n, err := w.length(w.limits.Keys, "number of keys")
	if err != nil {
		return err
	}
	total := 0
	for range n {
		k, err := w.key()
		if err != nil {
			return err
		}
		v, err := w.value()
		if err != nil {
			return err
		}
		if total += len(k) + len(v); total > max(maxRequest, w.limits.Value) {
			return errTooLarge
		}
		r.keys, r.values = append(r.keys, k), append(r.values, v)
	}
	return nil
}
