package sys

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// CPUSet is processors by their numbers, which ascend.
type CPUSet []int

// maxCPUs is how many processors a host may have.
const maxCPUs = 1 << 16

// ParseCPUs reads a kernel's list, such as "0-3,8". Empty, it's the empty set.
func ParseCPUs(list string) (CPUSet, error) {
	var s CPUSet
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
		if err != nil || err2 != nil || a < 0 || b < a || b >= maxCPUs {
			return nil, fmt.Errorf("%q is not a list of processors", list)
		}
		for n := a; n <= b; n++ {
			s = append(s, n)
		}
	}
	slices.Sort(s)
	return slices.Compact(s), nil
}

// String writes the set as the kernel does.
func (s CPUSet) String() string {
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
func (s CPUSet) And(t CPUSet) CPUSet {
	return slices.DeleteFunc(slices.Clone(s), func(n int) bool { return !slices.Contains(t, n) })
}

// Or returns what any of the two sets has.
func (s CPUSet) Or(t CPUSet) CPUSet {
	all := slices.Concat(s, t)
	slices.Sort(all)
	return slices.Compact(all)
}

// AllowedCPUs returns the processors that the calling thread may use, by its affinity and its cgroup; elsewhere than on
// Linux, those of the host.
func AllowedCPUs() (CPUSet, error) {
	cpus := threadCPUs()
	if cpus == nil {
		return nil, errors.New("the kernel doesn't say which processors may be used")
	}
	return cpus, nil
}

// PinThread has a thread, 0 for the calling one, use no processors but these. A calling thread must be locked to its
// goroutine; the processes that it starts from then on inherit its processors. Only Linux has this.
func PinThread(thread int, cpus CPUSet) error {
	if err := pinThread(thread, cpus); err != nil {
		return fmt.Errorf("binding a thread to the processors %v: %w", cpus, err)
	}
	return nil
}
