package launch

import (
	"fmt"
	"strconv"
	"strings"
)

// Streams is a set of a rank's output streams, with torchrun's numbers.
type Streams uint8

const (
	None   Streams = 0
	Stdout Streams = 1
	Stderr Streams = 2
	Both   Streams = Stdout | Stderr
)

// StreamMap gives the streams of each local rank: those in Rank where the rank has an entry, else All.
type StreamMap struct {
	All  Streams
	Rank map[int]Streams
}

// Of returns the streams of a local rank.
func (m StreamMap) Of(localRank int) Streams {
	if s, ok := m.Rank[localRank]; ok {
		return s
	}
	return m.All
}

func (m StreamMap) empty() bool { return m.All == None && len(m.Rank) == 0 }

// ParseStreams reads torchrun's notation: "3" for all ranks, or "0:3,1:2" for some local ranks and none of the others,
// where 0 is none, 1 standard output, 2 standard error and 3 both.
func ParseStreams(text string) (StreamMap, error) {
	bad := func() (StreamMap, error) {
		return StreamMap{}, fmt.Errorf("want 0 to 3 for all ranks, or a list such as 0:3,1:2 of local ranks, not %q", text)
	}
	if !strings.Contains(text, ":") {
		s, ok := parseStream(text)
		if !ok {
			return bad()
		}
		return StreamMap{All: s}, nil
	}
	m := StreamMap{Rank: map[int]Streams{}}
	for entry := range strings.SplitSeq(text, ",") {
		rank, stream, _ := strings.Cut(entry, ":")
		r, err := strconv.Atoi(strings.TrimSpace(rank))
		s, ok := parseStream(stream)
		if _, twice := m.Rank[r]; err != nil || r < 0 || !ok || twice {
			return bad()
		}
		m.Rank[r] = s
	}
	return m, nil
}

func parseStream(text string) (Streams, bool) {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 8)
	return Streams(n), err == nil && n <= uint64(Both)
}
