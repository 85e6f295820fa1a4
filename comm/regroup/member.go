package regroup

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/chorus-comms/chorus/bootstrap"
)

// OldPlace is a process's place in its old world: rank -1 if it's a newcomer.
type OldPlace struct {
	Name  string `json:"n,omitempty"` // of the communicator
	World string `json:"w,omitempty"` // which of the worlds of that name it is
	Rank  int    `json:"r"`
	Size  int    `json:"s,omitempty"`
}

// Member is a process that can be in a new world: its identity, and the addresses of its endpoint.
type Member struct {
	ID      string            `json:"i"` // of its endpoint
	Place   OldPlace          `json:"p"`
	Host    string            `json:"h,omitempty"` // for messages
	PID     int               `json:"d,omitempty"`
	Address bootstrap.Address `json:"a"`
}

const handlePrefix = "chorus1."

// maxHandle is longer than any handle of this version.
const maxHandle = 1024

// maxName bounds the names in a handle.
const maxName = 128

// Check reports whether a handle can tell the place.
func (p OldPlace) Check() error {
	if len(p.Name) > maxName || len(p.World) > maxName {
		return fmt.Errorf("the communicator's name is longer than %d bytes", maxName)
	}
	return nil
}

// String returns the member as a handle: opaque text without spaces.
func (m Member) String() string {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // it's made of strings and numbers
	}
	return handlePrefix + base64.RawURLEncoding.EncodeToString(b)
}

// Parse reads a handle.
func Parse(handle string) (Member, error) {
	var m Member
	text, ok := strings.CutPrefix(handle, handlePrefix)
	if !ok || len(handle) > maxHandle {
		return m, fmt.Errorf("%.40q is no handle of a Chorus communicator", handle)
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err == nil && (m.ID == "" || len(m.ID) > 64 || m.Place.Check() != nil || m.Place.Rank < -1 || m.Place.Size < 0 ||
		m.Place.Rank >= 0 && m.Place.Rank >= m.Place.Size) {
		err = fmt.Errorf("it says rank %d of %d", m.Place.Rank, m.Place.Size)
	}
	if err == nil {
		err = m.Address.Valid()
	}
	if err != nil {
		return Member{}, fmt.Errorf("handle %.40q: %w", handle, err)
	}
	return m, nil
}

// ParseAll reads a list of handles, in which none may stand twice.
func ParseAll(handles []string) ([]Member, error) {
	members := make([]Member, len(handles))
	seen := map[string]int{}
	for i, h := range handles {
		m, err := Parse(h)
		if err != nil {
			return nil, fmt.Errorf("member %d: %w", i, err)
		}
		if j, dup := seen[m.ID]; dup {
			return nil, fmt.Errorf("members %d and %d are the same process's endpoint", j, i)
		}
		members[i], seen[m.ID] = m, i
	}
	return members, nil
}

// Sort brings members that are a set into the order that every process finds: those of the largest old world first,
// by their ranks there, then the others, newcomers last.
func Sort(members []Member) {
	worlds := map[string]int{}
	for _, m := range members {
		worlds[m.Place.World]++
	}
	slices.SortFunc(members, func(a, b Member) int {
		if x, y := a.Place.Rank < 0, b.Place.Rank < 0; x != y {
			if x {
				return 1
			}
			return -1
		}
		if a.Place.World != b.Place.World {
			if x, y := worlds[a.Place.World], worlds[b.Place.World]; x != y {
				return y - x
			}
			return strings.Compare(a.Place.World, b.Place.World)
		}
		if a.Place.Rank != b.Place.Rank {
			return a.Place.Rank - b.Place.Rank
		}
		return strings.Compare(a.ID, b.ID)
	})
}

// describe names a member for a message.
func (m Member) describe(index int) string {
	was := "a newcomer"
	if m.Place.Rank >= 0 {
		was = fmt.Sprintf("rank %d before", m.Place.Rank)
	}
	return fmt.Sprintf("member %d (%s, pid %d on %s)", index, was, m.PID, m.Host)
}
