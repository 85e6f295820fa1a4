package hosts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/chorus-comms/chorus/launch"
	"github.com/chorus-comms/chorus/launch/internal/rendezvous"
)

// Host is a host on which a job has ranks.
type Host struct {
	Name  string // as ssh takes it: a name, an alias of its configuration, an address, or one of these after user@
	Slots int    // ranks there; 0: not given
}

// maxListed is more hosts than a job has.
const maxListed = 1 << 16

// ParseHosts reads a list such as host1:2,host2:2, in the form of mpirun's -H. An address of IPv6 with a number of
// ranks has brackets: [fe80::1]:2. A host that comes again has the ranks of both.
func ParseHosts(list string) ([]Host, error) {
	var all hostList
	for item := range strings.SplitSeq(list, ",") {
		if err := all.add(strings.TrimSpace(item), 0); err != nil {
			return nil, err
		}
	}
	return all.hosts, nil
}

// aroundEquals is "=" with the space that Open MPI permits around it.
var aroundEquals = regexp.MustCompile(`\s*=\s*`)

// ParseHostfile reads a file of hosts in the forms of Open MPI ("host slots=2") and MPICH ("host:2"), one on each line.
// A comment begins with #. Of the other words of Open MPI, max_slots=N is read and must not be less than slots.
func ParseHostfile(text string) ([]Host, error) {
	var all hostList
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(aroundEquals.ReplaceAllString(line, "="))
		if len(words) == 0 {
			continue
		}
		slots, err := parseSlots(words[1:])
		if err == nil {
			err = all.add(words[0], slots)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	if len(all.hosts) == 0 {
		return nil, errors.New("there is no host in it")
	}
	return all.hosts, nil
}

// parseSlots reads what follows a host in Open MPI's form.
func parseSlots(words []string) (slots int, err error) {
	limit := 0
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		field := map[string]*int{"slots": &slots, "max_slots": &limit, "max-slots": &limit}[key]
		if field == nil {
			return 0, fmt.Errorf("%q: want slots=N", word)
		}
		if *field, err = parseCount(value); err != nil {
			return 0, fmt.Errorf("%q: %w", word, err)
		}
	}
	if limit > 0 && slots > limit {
		return 0, fmt.Errorf("%d slots are more than max_slots=%d", slots, limit)
	}
	return slots, nil
}

func parseCount(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > launch.MaxRanksPerNode {
		return 0, fmt.Errorf("want a number of ranks from 1 to %d, not %q", launch.MaxRanksPerNode, text)
	}
	return n, nil
}

// hostList is a list of hosts without repetitions.
type hostList struct {
	hosts []Host
	at    map[string]int // where a name is
}

// add adds a host such as name:2, which has slots if it names no number itself.
func (l *hostList) add(item string, slots int) error {
	name, number, err := splitHost(item)
	if err != nil {
		return err
	}
	if number != "" && slots != 0 {
		return fmt.Errorf("%q: the number of ranks is given twice", item)
	}
	if number != "" {
		if slots, err = parseCount(number); err != nil {
			return fmt.Errorf("%q: %w", item, err)
		}
	}
	if i, again := l.at[name]; again {
		h := &l.hosts[i]
		h.Slots = max(h.Slots, 1) + max(slots, 1)
		if h.Slots > launch.MaxRanksPerNode {
			return fmt.Errorf("%q: more than %d ranks", name, launch.MaxRanksPerNode)
		}
		return nil
	}
	if len(l.hosts) == maxListed {
		return fmt.Errorf("more than %d hosts", maxListed)
	}
	if l.at == nil {
		l.at = map[string]int{}
	}
	l.at[name] = len(l.hosts)
	l.hosts = append(l.hosts, Host{name, slots})
	return nil
}

// splitHost cuts name:N. The number is empty if there is none.
func splitHost(item string) (name, number string, err error) {
	name = item
	switch i := strings.LastIndexByte(item, ':'); {
	case strings.Contains(item, "["):
		head, rest, _ := strings.Cut(item, "[")
		inside, tail, closed := strings.Cut(rest, "]")
		after, colon := strings.CutPrefix(tail, ":")
		if !closed || strings.Contains(inside, "[") || tail != "" && (!colon || after == "") {
			return "", "", fmt.Errorf("%q: want [ADDRESS]:N", item)
		}
		name, number = head+inside, after
	case i >= 0 && strings.Count(item, ":") == 1:
		name, number = item[:i], item[i+1:]
		if number == "" {
			return "", "", fmt.Errorf("%q: want HOST:N", item)
		}
	}
	return name, number, checkHost(name)
}

// checkHost refuses what is no name of a host: to ssh, or to a shell that it may start, it could mean something else.
func checkHost(name string) error {
	other := func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._-:%@", c))
	}
	user, host, hasUser := strings.Cut(name, "@")
	if !hasUser {
		user, host = "user", name
	}
	if user == "" || host == "" || user[0] == '-' || host[0] == '-' || strings.ContainsFunc(name, other) ||
		strings.Contains(host, "@") {
		return fmt.Errorf("%q is no name of a host", name)
	}
	return nil
}

// Local reports whether the host is certainly this one, by its name alone: localhost, this host's name, or an address
// of this host.
func (h Host) Local() bool {
	if own, err := os.Hostname(); h.Name == "localhost" || err == nil && h.Name == own {
		return true
	}
	ip := net.ParseIP(h.Name)
	if ip == nil {
		return false
	}
	_, here, _ := rendezvous.LocalAddr(context.Background(), h.Name) // an address, which no resolver is asked for
	return ip.IsLoopback() || here
}
