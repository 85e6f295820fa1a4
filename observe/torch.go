package observe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// WriteTorch writes dumps for PyTorch's analyzer, torchfrtrace, into a directory: rank_N for each rank. It has the
// collectives only, for the analyzer knows messages only in NCCL's groups. Its files are Python pickles; these hold one
// call, of json.loads, and the dump as its argument.
func WriteTorch(dir string, dumps []*Dump) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("observe: %w", err)
	}
	for _, d := range dumps {
		c := *d
		c.Entries = slices.DeleteFunc(slices.Clone(d.Entries), func(e Entry) bool { return e.PointToPoint || e.Seq == 0 })
		// The analyzer drops what not all ranks have, by these numbers.
		if len(d.Chorus.Comms) == 1 {
			for i := range c.Entries {
				c.Entries[i].Record = c.Entries[i].Seq
			}
		} else {
			for i := range c.Entries {
				c.Entries[i].Record = uint64(i)
			}
		}
		text, err := json.Marshal(&c)
		if err != nil {
			return fmt.Errorf("observe: %w", err)
		}
		// A string in a pickle of protocol 0 ends with its line and knows the escape \uXXXX, which has to stand for
		// backslashes.
		text = bytes.ReplaceAll(text, []byte(`\`), []byte(`\u005c`))
		var ascii bytes.Buffer
		for _, r := range string(text) {
			switch {
			case r < 0x80:
				ascii.WriteRune(r)
			case r < 0x10000:
				fmt.Fprintf(&ascii, `\u%04x`, r)
			default:
				fmt.Fprintf(&ascii, `\U%08x`, r)
			}
		}
		pickle := slices.Concat([]byte("cjson\nloads\n(V"), ascii.Bytes(), []byte("\ntR."))
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("rank_%d", d.Chorus.Rank)), pickle, 0o666); err != nil {
			return fmt.Errorf("observe: %w", err)
		}
	}
	return nil
}
