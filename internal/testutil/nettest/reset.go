package nettest

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// ResetStoreClient is a client of PyTorch's TCPStore that disconnects while it's being answered. It asks for more than
// the connection's buffers hold, reads the beginning of an answer, shuts its writing side down, and resets the
// connection. The server that is writing to it then gets EPIPE, and SIGPIPE if its process has asked for that signal.
func ResetStoreClient(addr string) error {
	text := func(b []byte, s string) []byte {
		return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
	}
	const (
		validate, set, get = 0, 1, 3
		magic              = 0x3C85F7CE
		key                = "deserter"
	)
	b := binary.LittleEndian.AppendUint32([]byte{validate}, magic)
	b = text(text(append(b, set), key), strings.Repeat("x", 1<<20))
	for range 32 {
		b = text(append(b, get), key)
	}
	return askAndReset(addr, b)
}

// ResetHTTPClient is such a client of a web server's page /.
func ResetHTTPClient(addr string) error {
	return askAndReset(addr, []byte(strings.Repeat("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 4096)))
}

func askAndReset(addr string, questions []byte) error {
	nc, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return err
	}
	defer nc.Close()
	c := nc.(*net.TCPConn)
	c.SetDeadline(time.Now().Add(10 * time.Second))
	go c.Write(questions) // the server stops reading while its answers aren't read
	if _, err := io.ReadFull(c, make([]byte, 64<<10)); err != nil {
		return fmt.Errorf("%s gives no answer: %w", addr, err)
	}
	if err := c.CloseWrite(); err != nil {
		return err
	}
	return c.SetLinger(0)
}
