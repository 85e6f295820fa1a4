package secure

import (
	"bytes"
	"crypto/hmac"
	"errors"
)

// sealMark begins what is sealed, so that a reader without the secret can tell what is wrong. No record of Chorus
// begins like this.
const sealMark = "\x00chorus seal 1\x00"

// SealBytes is how much longer a value becomes by its seal.
const SealBytes = len(sealMark) + proofBytes

var (
	// ErrSeal says that a record was written without the secret, or for another name.
	ErrSeal = errors.New("the record isn't sealed with the secret of this job")
	// ErrSealed says that a record is sealed, but this process has no secret.
	ErrSealed = errors.New("the record is sealed with a secret, and this process has none")
)

// Seal returns value with a seal that only a process with the secret can make, and that is valid under this name only.
// The value can be read by all.
func (s Secret) Seal(name string, value []byte) []byte {
	out := make([]byte, 0, SealBytes+len(value))
	out = append(out, sealMark...)
	out = append(out, s.seal(name, value)...)
	return append(out, value...)
}

// Open returns the value that was sealed under a name; it aliases sealed. Without a secret it returns what isn't sealed
// as it is.
func (s Secret) Open(name string, sealed []byte) ([]byte, error) {
	rest, marked := bytes.CutPrefix(sealed, []byte(sealMark))
	switch {
	case s.IsZero() && marked:
		return nil, ErrSealed
	case s.IsZero():
		return sealed, nil
	case !marked || len(rest) < proofBytes:
		return nil, ErrSeal
	}
	value := rest[proofBytes:]
	if !hmac.Equal(rest[:proofBytes], s.seal(name, value)) {
		return nil, ErrSeal
	}
	return value, nil
}

func (s Secret) seal(name string, value []byte) []byte {
	return s.mac([]byte("seal"), []byte(name), value)
}
