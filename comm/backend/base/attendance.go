package base

import (
	"errors"
	"fmt"
	"sync"

	"github.com/chorus-comms/chorus/comm/backend"
)

// Refusal is the last collective that this rank has refused. It breaks nothing: the caller may correct the call, and
// then the others, who wait, are served. If it doesn't, their time-outs say why.
type Refusal struct {
	mu   sync.Mutex
	seq  uint64 // the number that it would have had
	text string
}

// Set notes that an operation, which would have been number seq, was refused.
func (r *Refusal) Set(seq uint64, op string, why error) {
	text := why.Error()
	var bad *backend.InvalidArgumentError
	var canceled *backend.CanceledError
	switch {
	case errors.As(why, &bad):
		text = bad.Detail
	case errors.As(why, &canceled):
		text = fmt.Sprintf("its context had ended: %v", canceled.Err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seq, r.text = seq, op+": "+text
}

// Get returns the number and the text of the last one; 0 and "" if there was none.
func (r *Refusal) Get() (seq uint64, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seq, r.text
}

// Note has one of an attendance's maps say what is known of a rank, if anything is.
func Note(m *map[int]string, rank int, text string) {
	if text == "" {
		return
	}
	if *m == nil {
		*m = map[int]string{}
	}
	(*m)[rank] = text
}
