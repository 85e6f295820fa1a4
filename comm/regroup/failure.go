package regroup

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Kind says what an attempt came to grief over.
type Kind string

// The kinds.
const (
	Lost     Kind = "lost"     // members died, or closed their endpoints
	Missing  Kind = "missing"  // members did not come, or did not get ready, in time
	Mismatch Kind = "mismatch" // a member has another list
	Failed   Kind = "failed"   // a member could not prepare
	Unable   Kind = "unable"   // nor could one that has no descriptors or no memory left
	Canceled Kind = "canceled" // a member's context was cancelled
)

// Error is why an attempt failed, the same on every member that can know.
type Error struct {
	UUID    string `json:"-"`
	Kind    Kind   `json:"k"`
	Members []int  `json:"m"` // those at fault, by their place in the list; never empty
	Text    string `json:"t,omitempty"`

	names []string
	cause error // on the member that could not prepare
}

func (e *Error) Error() string {
	verb := map[Kind]string{Lost: "lost", Missing: "not there in time", Mismatch: "another list",
		Failed: "could not prepare", Unable: "could not prepare", Canceled: "gave up"}[e.Kind]
	s := fmt.Sprintf("attempt %q: %s: %s", e.UUID, strings.Join(e.names, ", "), verb)
	if e.Text != "" {
		s += ": " + e.Text
	}
	return s
}

// Unwrap returns the error that preparing failed with, on the member where it did.
func (e *Error) Unwrap() error { return e.cause }

// The outcome of an attempt, as it stands in a store.
const committed = "commit"

// failure makes the error of this attempt.
func (a *attempt) failure(kind Kind, text string, cause error, members ...int) *Error {
	return a.named(&Error{Kind: kind, Members: members, Text: text, cause: cause})
}

func (a *attempt) named(e *Error) *Error {
	e.UUID = a.uuid
	for _, i := range e.Members {
		e.names = append(e.names, a.members[i].describe(i))
	}
	return e
}

// encode returns what stands in a store for the failure.
func (e *Error) encode() []byte {
	b, err := json.Marshal(e)
	if err != nil {
		panic(err) // it's made of strings and numbers
	}
	return b
}

// decode reads an outcome: nil for a commit.
func (a *attempt) decode(outcome []byte, from int) error {
	if string(outcome) == committed {
		return nil
	}
	var e Error
	bad := json.Unmarshal(outcome, &e) != nil || len(e.Members) == 0 || len(e.Members) > len(a.members)
	for _, i := range e.Members {
		bad = bad || i < 0 || i >= len(a.members)
	}
	if bad {
		return a.failure(Failed, fmt.Sprintf("its store says %.80q", outcome), nil, from)
	}
	return a.named(&e)
}
