// Package cpuset knows the processors of a host: which a process may use, and how they make up cores, sockets and NUMA
// nodes.
//
//	may, err := cpuset.Allowed()                          // 0-3
//	cores, err := cpuset.Cores("/sys/devices/system", may) // two, of two hardware threads each
package cpuset

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/chorus-comms/chorus/internal/affinity"
)

// Set is processors by their numbers, which ascend.
type Set []int

// most is how many processors a host may have.
const most = 1 << 16

// Parse reads a kernel's list, such as "0-3,8". Empty, it's the empty set.
func Parse(list string) (Set, error) {
	var s Set
	list = strings.TrimSpace(list)
	if list == "" {
		return s, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		lo, hi, ranged := strings.Cut(part, "-")
		if !ranged {
			hi = lo
		}
		a, err := strconv.Atoi(lo)
		b, err2 := strconv.Atoi(hi)
		if err != nil || err2 != nil || a < 0 || b < a || b >= most {
			return nil, fmt.Errorf("cpuset: %q is not a list of processors", list)
		}
		for n := a; n <= b; n++ {
			s = append(s, n)
		}
	}
	slices.Sort(s)
	return slices.Compact(s), nil
}

// String writes the set as the kernel does.
func (s Set) String() string {
	var parts []string
	for i := 0; i < len(s); {
		j := i
		for j+1 < len(s) && s[j+1] == s[j]+1 {
			j++
		}
		if i == j {
			parts = append(parts, strconv.Itoa(s[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", s[i], s[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// And returns what both sets have.
func (s Set) And(t Set) Set {
	return slices.DeleteFunc(slices.Clone(s), func(n int) bool { return !slices.Contains(t, n) })
}

// Or returns what any of the two sets has.
func (s Set) Or(t Set) Set {
	all := slices.Concat(s, t)
	slices.Sort(all)
	return slices.Compact(all)
}

// Allowed returns the processors that the calling thread may use, by its affinity and its cgroup.
func Allowed() (Set, error) {
	s := Set(affinity.Cores())
	if s == nil {
		return nil, errors.New("cpuset: the kernel doesn't say which processors may be used")
	}
	return s, nil
}

// Tie binds the calling thread, which must be locked to its goroutine, and the processes that it starts from now on.
func (s Set) Tie() error {
	if err := affinity.Pin(0, s...); err != nil {
		return fmt.Errorf("cpuset: processors %v: %w", s, err)
	}
	return nil
}
