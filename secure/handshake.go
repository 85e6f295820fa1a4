package secure

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
)

// The two sides send, after the initiator's hello:
//
//	initiator: 32 random bytes
//	responder: 32 random bytes
//	initiator: its proof
//	responder: its proof
//
// A proof is HMAC-SHA256 of: the role, the hello, both random values, and within TLS the exporter of the connection.
const (
	nonceBytes = 32
	proofBytes = sha256.Size

	// HandshakeBytes is what each side sends, and reads, besides the hello.
	HandshakeBytes = nonceBytes + proofBytes
)

var (
	// ErrRefused says that the other end has another secret than this one, or none.
	ErrRefused = errors.New("the other end doesn't have the secret of this job")
	// ErrNoSecret says that the other end asks for no proof, because it has no secret.
	ErrNoSecret = errors.New("the other end has no secret, but this one has")
	// ErrWantsSecret says that the other end asks for a proof, and this one has no secret.
	ErrWantsSecret = errors.New("the other end wants proof of the job's secret, and this one has none (CHORUS_SECRET_FILE)")
	// ErrNoTLS says that this end encrypts the connection, and the other doesn't.
	ErrNoTLS = errors.New("this end uses TLS, but the other doesn't (CHORUS_TLS)")
	// ErrWantsTLS says that the other end encrypts the connection, and this one doesn't.
	ErrWantsTLS = errors.New("the other end uses TLS, but this one doesn't (CHORUS_TLS)")
)

// Foreign reports whether an error says that the other end doesn't belong to the job, or is set up otherwise than this
// one: trying again doesn't help.
func Foreign(err error) bool {
	for _, e := range []error{ErrRefused, ErrNoSecret, ErrWantsSecret, ErrNoTLS, ErrWantsTLS, ErrOtherUser,
		ErrCertificate} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// declined are what takes the place of the responder's random bytes if it won't go on.
var declined = map[error][nonceBytes]byte{
	ErrNoSecret: {},
	ErrWantsTLS: [nonceBytes]byte(bytes.Repeat([]byte{1}, nonceBytes)),
}

// Initiate sends hello, proves that this end knows the secret, and has the other end prove it. The end that made
// the connection calls it. The caller sets deadlines on c, and must not have read ahead. ErrRefused and
// ErrNoSecret are permanent: trying again doesn't help.
func (s Secret) Initiate(c io.ReadWriter, hello []byte) error {
	binding, err := channel(c)
	if err != nil {
		return err
	}
	out := make([]byte, len(hello)+nonceBytes)
	mine := out[copy(out, hello):]
	rand.Read(mine)
	if _, err := c.Write(out); err != nil {
		return err
	}
	var theirs [nonceBytes]byte
	if _, err := io.ReadFull(c, theirs[:]); err != nil {
		return fmt.Errorf("no answer to the hello: %w", err)
	}
	for why, word := range declined {
		if theirs == word {
			return why
		}
	}
	if _, err := c.Write(s.proof(initiator, hello, mine, theirs[:], binding)); err != nil {
		return fmt.Errorf("%w (%w)", ErrRefused, err)
	}
	var proof [proofBytes]byte
	if _, err := io.ReadFull(c, proof[:]); err != nil {
		if isTimeout(err) {
			return fmt.Errorf("no answer to the proof: %w", err)
		}
		return fmt.Errorf("%w: it closed the connection instead of proving itself (%w)", ErrRefused, err)
	}
	if !hmac.Equal(proof[:], s.proof(responder, hello, mine, theirs[:], binding)) {
		return ErrRefused
	}
	return nil
}

// Respond is the other side of Initiate: the end that accepted the connection calls it, after it has read hello. If it
// returns an error, the caller must close the connection without sending anything.
func (s Secret) Respond(c io.ReadWriter, hello []byte) error {
	binding, err := channel(c)
	if err != nil {
		return err
	}
	var theirs, mine [nonceBytes]byte
	if _, err := io.ReadFull(c, theirs[:]); err != nil {
		return err
	}
	rand.Read(mine[:])
	if _, err := c.Write(mine[:]); err != nil {
		return err
	}
	var proof [proofBytes]byte
	if _, err := io.ReadFull(c, proof[:]); err != nil {
		return err
	}
	if !hmac.Equal(proof[:], s.proof(initiator, hello, theirs[:], mine[:], binding)) {
		return ErrRefused
	}
	_, err = c.Write(s.proof(responder, hello, theirs[:], mine[:], binding))
	return err
}

// Decline answers Initiate on behalf of a process that is set up otherwise, so that the other end learns what is wrong:
// why is the error that it gets, ErrNoSecret or ErrWantsTLS.
func Decline(c io.Writer, why error) error {
	word := declined[why]
	_, err := c.Write(word[:])
	return err
}

// Unwelcome is what a listener says to a client that has not begun as it should have, before it closes: one that
// encrypts, and takes it for ErrNoTLS, or one that doesn't prove itself. It's in no protocol that such a client could
// take it for.
const Unwelcome = "\xffCHORUS\x00"

type role string

const (
	initiator role = "initiator"
	responder role = "responder"
)

func (s Secret) proof(r role, hello, first, second, binding []byte) []byte {
	return s.mac([]byte("proof"), []byte(r), hello, first, second, binding)
}

// channel returns the channel binding of a TLS connection (RFC 9266): bytes that both ends know, and that no man in
// the middle can have. It's empty for a connection without TLS.
func channel(c io.ReadWriter) ([]byte, error) {
	t, ok := c.(*tls.Conn)
	if !ok {
		return nil, nil
	}
	state := t.ConnectionState()
	return state.ExportKeyingMaterial("EXPORTER-Channel-Binding", nil, 32)
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && t.Timeout()
}
