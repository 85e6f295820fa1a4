package fault

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/chorus-comms/chorus/fabric"
)

// Action is what a rule does to a message.
type Action int

// The actions. All but Delay and Stall let the sender think that all is well.
const (
	Delay     Action = iota + 1 // the message, and those to the same peer after it, are sent later
	Drop                        // it never arrives
	Truncate                    // its second half is missing
	Corrupt                     // one bit of it is flipped
	Mislabel                    // one bit of its description is flipped
	Duplicate                   // it arrives twice
	Stall                       // it, and those to the same peer after it, wait until Release
	Cut                         // the peer is lost before it is sent
)

var actions = map[string]Action{"delay": Delay, "drop": Drop, "truncate": Truncate, "corrupt": Corrupt,
	"mislabel": Mislabel, "duplicate": Duplicate, "stall": Stall, "cut": Cut}

// Classes is a set of classes; the empty one means all.
type Classes uint8

// On returns the set of the classes.
func On(classes ...fabric.Class) (s Classes) {
	for _, l := range classes {
		s |= 1 << l
	}
	return s
}

// Rule breaks some of the messages that a rank sends. Of a message to which
// several apply, the first one acts.
type Rule struct {
	Do      Action
	Peer    int     // AnySource: every peer
	Classes Classes // on which classes
	After   int     // so many messages go unharmed first
	Count   int     // how many are broken then; 0: all
	Chance  float64 // of each of them; 0: 1
	Delay   time.Duration
}

func (r *Rule) matches(m *fabric.Msg) bool {
	return (r.Peer == fabric.AnySource || r.Peer == m.Peer) && (r.Classes == 0 || r.Classes&On(m.Key.Class) != 0)
}

// Script is what ParseScript reads.
type Script struct {
	Rules []Rule
	Seed  uint64
}

// ParseScript reads rules that are separated by semicolons. A rule is an action and
// what limits it: peer, class (collective, p2p, internal), after, count, chance.
// Without a peer it's about all. "delay" has a value, its time. "seed=n" on its own
// sets the seed of all that is random.
func ParseScript(text string) (Script, error) {
	var s Script
	for _, part := range strings.Split(text, ";") {
		words := strings.Fields(part)
		if len(words) == 0 {
			continue
		}
		name, value, _ := strings.Cut(words[0], "=")
		if name == "seed" && len(words) == 1 {
			n, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				return s, fmt.Errorf("fault: %q: want a number", words[0])
			}
			s.Seed = n
			continue
		}
		r := Rule{Do: actions[name], Peer: fabric.AnySource}
		if r.Do == 0 || (value != "") != (r.Do == Delay) {
			return s, fmt.Errorf("fault: %q is no action; there are corrupt, cut, delay=<time>, drop, duplicate, mislabel, stall, truncate", words[0])
		}
		if r.Do == Delay {
			words = append(words, words[0])
		}
		for _, w := range words[1:] {
			if err := r.limit(w); err != nil {
				return s, fmt.Errorf("fault: %q in %q: %w", w, strings.TrimSpace(part), err)
			}
		}
		s.Rules = append(s.Rules, r)
	}
	return s, nil
}

func (r *Rule) limit(word string) (err error) {
	name, value, _ := strings.Cut(word, "=")
	natural := func(to *int) {
		if *to, err = strconv.Atoi(value); err == nil && *to < 0 {
			err = fmt.Errorf("want a number from 0 up")
		}
	}
	switch name {
	case "peer":
		natural(&r.Peer)
	case "after":
		natural(&r.After)
	case "count":
		natural(&r.Count)
	case "chance":
		if r.Chance, err = strconv.ParseFloat(value, 64); err == nil && !(r.Chance > 0 && r.Chance <= 1) {
			err = fmt.Errorf("want more than 0, at most 1")
		}
	case "delay":
		if r.Delay, err = time.ParseDuration(value); err == nil && r.Delay < 0 {
			err = fmt.Errorf("want no less than 0")
		}
	case "class":
		classes := map[string]fabric.Class{"collective": fabric.Collective, "p2p": fabric.PointToPoint,
			"internal": fabric.Internal}
		class, ok := classes[value]
		if !ok {
			return fmt.Errorf("want collective, p2p or internal")
		}
		r.Classes |= On(class)
	default:
		err = fmt.Errorf("unknown limit; there are after, chance, count, class, peer")
	}
	return err
}
