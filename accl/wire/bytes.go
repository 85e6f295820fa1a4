package wire

import (
	"encoding/json"
	"errors"
	"strconv"
)

// numbers are bytes as the protocol has them in JSON: a list of numbers, of which some writers make the upper half
// negative.
type numbers []byte

// MarshalJSON implements json.Marshaler.
func (b numbers) MarshalJSON() ([]byte, error) { return appendNumbers(nil, b), nil }

func appendNumbers(out []byte, b []byte) []byte {
	out = append(out, '[')
	for i, x := range b {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendUint(out, uint64(x), 10)
	}
	return append(out, ']')
}

var errNumbers = errors.New("no list of bytes")

// UnmarshalJSON implements json.Unmarshaler.
func (b *numbers) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	if len(text) < 2 || text[0] != '[' {
		return errNumbers
	}
	out := make([]byte, 0, len(text)/3)
	for i := 1; i < len(text); {
		switch c := text[i]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ',':
			i++
		case c == ']':
			*b = out
			return nil
		default:
			start := i
			if c == '-' {
				i++
			}
			x := 0
			digits := i
			for ; i < len(text) && text[i] >= '0' && text[i] <= '9' && i-digits < 4; i++ {
				x = 10*x + int(text[i]-'0')
			}
			if text[start] == '-' {
				x = -x
			}
			if i == digits || x < -128 || x > 255 || i == len(text) {
				return errNumbers
			}
			switch text[i] {
			case ',', ']', ' ', '\t', '\n', '\r':
			default:
				return errNumbers
			}
			out = append(out, byte(x))
		}
	}
	return errNumbers
}

// payload is the JSON object in which packets and the data of kernels travel.
type payload struct {
	Data numbers `json:"data"`
}

func encodePayload(b []byte) []byte {
	return append(appendNumbers([]byte(`{"data":`), b), '}')
}

func decodePayload(frame []byte) ([]byte, error) {
	var p payload
	err := json.Unmarshal(frame, &p)
	return p.Data, err
}
