package wire

import (
	"errors"
	"net"

	"github.com/chorus-comms/chorus/accl/wire/internal/zmtp"
	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/secure"
)

// Limits of one message. ACCL's driver writes a byte of memory as up to eight characters, and a buffer in one command.
const (
	maxCommand      = 1 << 30
	maxAnswer       = 1 << 28
	maxPacketText   = 1 << 20
	maxSubscription = 1 << 10
	maxKernelData   = 1 << 30
	// maxRead is how many bytes of memory are read by one command.
	maxRead = 1 << 28
	// transfer is how many of them this package's own driver asks for, or sends, at once.
	transfer = 1 << 20
)

// accepting are the options of a socket that others connect to: processes of the same user, or all of the host if
// CHORUS_INSECURE says so.
func accepting(limit int, log func(error)) zmtp.Options {
	o := zmtp.Options{MaxMessage: limit, Log: log}
	if !insecure() {
		o.Admit = func(c net.Conn) error { return otherUser(secure.SameUser(c)) }
	}
	return o
}

// connecting are the options of a socket that connects to others.
func connecting(limit int) zmtp.Options {
	o := zmtp.Options{MaxMessage: limit}
	if !insecure() {
		o.Admit = func(c net.Conn) error { return otherUser(secure.ServedBySameUser(c)) }
	}
	return o
}

// otherUser keeps an error that says that the process is another user's, and drops others: some systems can't tell.
func otherUser(err error) error {
	if errors.Is(err, secure.ErrOtherUser) {
		return err
	}
	return nil
}

func insecure() bool {
	c, err := config.Load(nil)
	return err == nil && c.Insecure
}
