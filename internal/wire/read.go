package wire

import "io"

// FirstRead is how much memory an announcement gets by itself.
const FirstRead = 64 << 10

// ReadN reads n bytes, as many as a peer has announced, into memory that grows with what has arrived: it's never more
// than FirstRead, or twice what has arrived. The error is io.EOF if nothing has come, and io.ErrUnexpectedEOF if not
// all has.
func ReadN(r io.Reader, n int) ([]byte, error) {
	b := make([]byte, min(n, FirstRead))
	for done := 0; ; {
		got, err := io.ReadFull(r, b[done:])
		if done += got; err != nil {
			if err == io.EOF && done > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		if done == n {
			return b, nil
		}
		b = append(b, make([]byte, min(n-done, done))...)
	}
}
