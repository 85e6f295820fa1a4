package tensor

import (
	"encoding/json"
	"maps"
	"testing"
)

// FuzzRestore reads anything as the metadata of a storage: it's an error, or metadata that is saved and restored alike.
func FuzzRestore(f *testing.F) {
	f.Add(`{"a":"b"}`)
	f.Add(`{"a":1}`)
	f.Add(`null`)
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		x, y := Of([]float32{1}), Of([]float32{1})
		if x.restore(text) != nil {
			return
		}
		m := x.StorageMetadata()
		saved, err := json.Marshal(m)
		if err == nil {
			err = y.restore(string(saved))
		}
		if err != nil || !maps.Equal(m, y.StorageMetadata()) {
			t.Errorf("%q is %q, then %q: %v", text, m, y.StorageMetadata(), err)
		}
	})
}
