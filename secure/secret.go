package secure

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/chorus-comms/chorus/internal/sys"
)

// minText is the shortest text that is taken for a secret. Proofs can be tested offline against guesses, so a secret
// has to be random, not memorable: 16 characters of base64 or hex are at least 64 bits.
const minText = 16

// A Secret is a key of 256 bits that all processes of a job have. The zero Secret is none. It can be copied and
// compared with ==, and used from any goroutine.
type Secret struct {
	key [sha256.Size]byte
	set bool
}

// Generate returns the text of a fresh secret, for Parse: 64 hexadecimal digits.
func Generate() string {
	var b [sha256.Size]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Parse makes a secret of its text, of which white space around it is no part. The text needs 16 bytes and should be
// random.
func Parse(text string) (Secret, error) {
	text = strings.TrimSpace(text)
	if len(text) < minText {
		return Secret{}, fmt.Errorf("a secret of %d characters; it needs at least %d, and should be random, as `chorus secret` prints one", len(text), minText)
	}
	key, err := hkdf.Key(sha256.New, []byte(text), nil, "chorus job secret 1", sha256.Size)
	if err != nil {
		return Secret{}, err
	}
	return fromKey(key), nil
}

// maxText and maxPEM bound what ReadText and ReadPEM read.
const (
	maxText = 64 << 10
	maxPEM  = 8 << 20
)

// ReadText reads a file with a secret or a password.
func ReadText(path string) ([]byte, error) { return readFile(path, maxText) }

// ReadPEM reads a file with certificates or a key.
func ReadPEM(path string) ([]byte, error) { return readFile(path, maxPEM) }

func readFile(path string, limit int64) ([]byte, error) {
	text, err := sys.ReadRegular(path, limit)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return text, nil
}

// ReadFile reads the text of a secret from a file.
func ReadFile(path string) (Secret, error) {
	text, err := ReadText(path)
	if err != nil {
		return Secret{}, err
	}
	s, err := Parse(string(text))
	if err != nil {
		return Secret{}, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func fromKey(key []byte) Secret {
	s := Secret{set: true}
	copy(s.key[:], key)
	return s
}

// IsZero reports whether there is no secret.
func (s Secret) IsZero() bool { return !s.set }

// String says whether there is a secret, and not which.
func (s Secret) String() string {
	if s.set {
		return "(a secret)"
	}
	return "(no secret)"
}

// GoString keeps %#v from showing the key.
func (s Secret) GoString() string { return s.String() }

// Derive makes a secret for a purpose, which is its own for every label and every part. Of no secret it makes one that
// only those lack who don't know the parts.
func (s Secret) Derive(label string, parts ...[]byte) Secret {
	return fromKey(s.mac(append([][]byte{[]byte("derive"), []byte(label)}, parts...)...))
}

// mac is an HMAC-SHA256 over parts, each with its length before it.
func (s Secret) mac(parts ...[]byte) []byte {
	h := hmac.New(sha256.New, s.key[:])
	var n [8]byte
	for _, p := range parts {
		binary.LittleEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write(p)
	}
	return h.Sum(nil)
}
