package tensor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/chorus-comms/chorus/dtype"
)

// npyHeader is what the header of a .npy file says.
type npyHeader struct {
	dt      dtype.DType
	swap    bool // big-endian
	fortran bool
	shape   []int
}

func readNPYHeader(r io.Reader) (h npyHeader, err error) {
	var pre [len(npyMagic) + 2]byte
	if _, err := io.ReadFull(r, pre[:]); err != nil {
		return h, fmt.Errorf("the file ends within the first %d bytes: %w", len(pre), err)
	}
	if string(pre[:len(npyMagic)]) != npyMagic {
		return h, errors.New("this is no .npy file: the magic string is missing")
	}
	major, minor := pre[len(npyMagic)], pre[len(npyMagic)+1]
	if major < 1 || major > 3 || minor != 0 {
		return h, fmt.Errorf("format version %d.%d is unknown, want 1.0, 2.0 or 3.0", major, minor)
	}
	lenSize := 4
	if major == 1 {
		lenSize = 2
	}
	var size [4]byte
	if _, err := io.ReadFull(r, size[:lenSize]); err != nil {
		return h, fmt.Errorf("the file ends within the header's length: %w", err)
	}
	n := binary.LittleEndian.Uint32(size[:])
	if n > npyMaxHeader {
		return h, fmt.Errorf("a header of %d bytes is longer than %d", n, npyMaxHeader)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return h, fmt.Errorf("the file ends within the header: %w", err)
	}
	if h, err = parseNPYHeader(string(text)); err != nil {
		return h, fmt.Errorf("header %.200q: %w", text, err)
	}
	return h, nil
}

// parseNPYHeader reads the Python dictionary with exactly the keys descr, fortran_order and shape.
func parseNPYHeader(text string) (h npyHeader, err error) {
	s := scanner{rest: text}
	s.expect("{")
	seen := map[string]bool{}
	for s.err == nil && !s.accept("}") {
		key := s.str()
		s.expect(":")
		if seen[key] {
			return h, fmt.Errorf("key %q twice", key)
		}
		seen[key] = true
		switch key {
		case "descr":
			if s.peek("[") {
				return h, errors.New("structured element types are not supported")
			}
			code := s.str()
			if s.err == nil {
				h.dt, h.swap, err = parseNPYCode(code)
			}
		case "fortran_order":
			h.fortran = s.boolean()
		case "shape":
			h.shape = s.tuple()
		default:
			if s.err == nil {
				err = fmt.Errorf("unknown key %q", key)
			}
		}
		if err != nil {
			return h, err
		}
		if !s.accept(",") && !s.peek("}") {
			s.fail("a comma or the end of the dictionary")
		}
	}
	if s.skip(); s.rest != "" {
		s.fail("nothing more")
	}
	if s.err == nil && len(seen) != 3 {
		s.err = errors.New("descr, fortran_order and shape are not all there")
	}
	return h, s.err
}

func parseNPYCode(code string) (dt dtype.DType, swap bool, err error) {
	if code != "" && strings.Contains("<>|=", code[:1]) {
		swap = code[0] == '>'
		for dt, c := range npyCodes {
			if c == code[1:] {
				return dt, swap && dt.Size() > 1, nil
			}
		}
	}
	return dtype.Invalid, false, fmt.Errorf("element type %q is not supported", code)
}

// scanner reads the few kinds of Python literal that a header has. After an error it finds nothing more.
type scanner struct {
	rest string
	err  error
}

func (s *scanner) fail(want string) {
	if s.err == nil {
		s.err = fmt.Errorf("want %s at %.20q", want, s.rest)
	}
}

func (s *scanner) skip() { s.rest = strings.TrimLeft(s.rest, " \t\n") }

func (s *scanner) peek(token string) bool {
	s.skip()
	return s.err == nil && strings.HasPrefix(s.rest, token)
}

func (s *scanner) accept(token string) bool {
	ok := s.peek(token)
	if ok {
		s.rest = s.rest[len(token):]
	}
	return ok
}

func (s *scanner) expect(token string) {
	if !s.accept(token) {
		s.fail(strconv.Quote(token))
	}
}

// str reads a string. None that matters has an escape in it.
func (s *scanner) str() string {
	for _, quote := range []string{"'", `"`} {
		if s.accept(quote) {
			text, rest, ok := strings.Cut(s.rest, quote)
			if !ok || strings.Contains(text, `\`) {
				s.fail("a plain string")
				return ""
			}
			s.rest = rest
			return text
		}
	}
	s.fail("a string")
	return ""
}

func (s *scanner) boolean() bool {
	if s.accept("True") {
		return true
	}
	if !s.accept("False") {
		s.fail("True or False")
	}
	return false
}

// tuple reads a tuple of dimensions. Python 2 wrote some with a trailing L.
func (s *scanner) tuple() []int {
	dims := []int{}
	s.expect("(")
	comma := true
	for s.err == nil && !s.accept(")") {
		if !comma {
			s.fail("a comma")
			return nil
		}
		s.skip()
		digits := len(s.rest) - len(strings.TrimLeft(s.rest, "0123456789"))
		d, err := strconv.Atoi(s.rest[:digits])
		if err != nil {
			s.fail("a dimension")
			return nil
		}
		s.rest = s.rest[digits:]
		s.accept("L")
		comma = s.accept(",")
		dims = append(dims, d)
	}
	if len(dims) == 1 && !comma {
		s.fail("a comma after the only dimension")
	}
	return dims
}
