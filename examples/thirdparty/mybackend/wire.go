package mybackend

import (
	"bufio"
	"encoding/gob"
	"net"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
)

// kind says what a message is.
type kind uint8

const (
	hello   kind = iota + 1 // to the hub: From is this rank of the job
	welcome                 // from the hub: everybody is there
	part                    // to the hub: this rank's contribution to a collective
	result                  // from the hub: what this rank gets of it
	letter                  // either way: a message from one rank to another
	overdue                 // to the hub: this rank's time for collective Seq is over
	broken                  // either way: the communicator is broken; Failure says why
	goodbye                 // to the hub: this rank leaves the job
)

// message is all that travels. Ranks in it are those of communicator Comm.
type message struct {
	Kind     kind
	Comm     uint32
	From, To int
	Seq      uint64
	Tag      int
	Desc     string // the operation in words; equal on all ranks of a collective
	Spec     spec
	Sizes    []int // bytes of Data for each rank; in a split: the list of ranks
	Expected []int // all-to-all: bytes that this rank expects of each rank
	Data     []byte
	Failure  *failure
	Elapsed  time.Duration
}

// spec is what the hub needs to know of a collective. It's equal on all ranks if Desc is.
type spec struct {
	Op     backend.Kind // 0: a split
	DType  dtype.DType
	Reduce backend.ReduceKind
	Root   int
}

// patience bounds every write to a connection whose other end always reads.
const patience = 30 * time.Second

// link is one end of a connection between a rank and the hub.
type link struct {
	conn net.Conn
	dec  *gob.Decoder

	mu  sync.Mutex
	buf *bufio.Writer
	enc *gob.Encoder
}

func newLink(c net.Conn) *link {
	buf := bufio.NewWriterSize(c, 64<<10)
	return &link{conn: c, dec: gob.NewDecoder(bufio.NewReaderSize(c, 64<<10)), buf: buf, enc: gob.NewEncoder(buf)}
}

// send may be called from any goroutine.
func (l *link) send(m *message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn.SetWriteDeadline(time.Now().Add(patience))
	if err := l.enc.Encode(m); err != nil {
		return err
	}
	return l.buf.Flush()
}

// receive is for one goroutine. Each message is new, so its Data may be kept.
func (l *link) receive() (*message, error) {
	m := new(message)
	err := l.dec.Decode(m)
	return m, err
}
