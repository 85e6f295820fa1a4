package endpoint

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"

	"github.com/chorus-comms/chorus/observe"
)

// page shows what ranks do: it asks the server that it came from, unless a file has been made of it.
//
//go:embed page.html
var page []byte

var given = []byte("/*given*/null")

// WritePage writes a page of HTML that needs no server, with what the dumps of a job tell, and which of its ranks don't
// answer.
func WritePage(w io.Writer, dumps []*observe.Dump, silent []observe.Silent) error {
	// With <, > and & escaped.
	data, err := json.Marshal(map[string]any{"top": observe.TopOf(dumps, silent...), "report": observe.Explain(dumps,
		silent...)})
	if err != nil {
		return fmt.Errorf("endpoint: %w", err)
	}
	_, err = w.Write(bytes.Replace(page, given, data, 1))
	return err
}
