package bootstrap

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// maxHosts bounds what a short text such as n[0-9999999] may expand to.
const maxHosts = 1 << 17

// ParseHostlist expands a list of hosts as Slurm writes it:
//
//	login,gpu[01-03,7],rack[1-2]n[1-2]
//
// is login, gpu01, gpu02, gpu03, gpu7, rack1n1, rack1n2, rack2n1, rack2n2. A
// number keeps the width in which the range begins. The list is not empty.
func ParseHostlist(list string) ([]string, error) {
	var hosts []string
	for rest := list; ; {
		item, tail, more, err := cutItem(rest)
		if err != nil {
			return nil, err
		}
		if hosts, err = expand(hosts, "", item); err != nil {
			return nil, err
		}
		if !more {
			return hosts, nil
		}
		rest = tail
	}
}

// cutItem splits list at the first comma outside of brackets.
func cutItem(list string) (item, rest string, more bool, err error) {
	inside := false
	for i := range len(list) {
		switch c := list[i]; {
		case c == '[' && !inside:
			inside = true
		case c == ']' && inside:
			inside = false
		case c == '[' || c == ']':
			return "", "", false, fmt.Errorf("bracket without its partner at byte %d", i)
		case c == ',' && !inside:
			return list[:i], list[i+1:], true, nil
		}
	}
	if inside {
		return "", "", false, errors.New("bracket without its partner at the end")
	}
	return list, "", false, nil
}

// expand appends to hosts every host that prefix+item stands for.
func expand(hosts []string, prefix, item string) ([]string, error) {
	name, rest, found := strings.Cut(item, "[")
	if !found {
		host := prefix + item
		if host == "" || strings.ContainsAny(host, " \t\r\n/\x00") {
			return nil, fmt.Errorf("%q is no host name", host)
		}
		if len(hosts) == maxHosts {
			return nil, fmt.Errorf("more than %d hosts", maxHosts)
		}
		return append(hosts, host), nil
	}
	ranges, tail, _ := strings.Cut(rest, "]") // cutItem has paired the brackets
	for r := range strings.SplitSeq(ranges, ",") {
		low, high, isRange := strings.Cut(r, "-")
		if !isRange {
			high = low
		}
		first, err1 := number(low)
		last, err2 := number(high)
		if err := errors.Join(err1, err2); err != nil || last < first {
			return nil, fmt.Errorf("%q is no range of numbers", r)
		}
		for n := first; n <= last; n++ {
			var err error
			if hosts, err = expand(hosts, fmt.Sprintf("%s%s%0*d", prefix, name, len(low), n), tail); err != nil {
				return nil, err
			}
		}
	}
	return hosts, nil
}

// number parses decimal digits and nothing else.
func number(digits string) (int, error) {
	if len(digits) > 9 {
		return 0, errors.New("too many digits")
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	return int(n), err
}
