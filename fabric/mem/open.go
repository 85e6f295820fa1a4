package mem

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"

	"github.com/chorus-comms/chorus/fabric"
)

func init() { fabric.Register("mem", open) }

// record is what a rank tells the others while opening.
type record struct {
	Process string // differs between processes
	World   string // rank 0's is the name of the world
	Host    string
	Buffer  int
	Wait    string
}

var process = rand.Text()

// opening holds the worlds that not all ranks have joined yet, by name.
var opening struct {
	sync.Mutex
	worlds map[string]*joining
}

type joining struct {
	world   *world
	missing int
}

// open finds the ranks that are opened elsewhere in this process. Options:
// "buffer", the size in bytes up to which messages are buffered, -1 for none; "wait", which
// is auto, or block for waits that sleep at once. Rank 0's count.
func open(ctx context.Context, c fabric.Config) (fabric.Fabric, error) {
	own := record{Process: process, World: rand.Text(), Host: c.HostID, Buffer: defaultBuffer}
	for k, v := range c.Options {
		n, err := strconv.Atoi(v)
		switch {
		case k == "buffer" && err == nil && n >= -1 && n <= 1<<20:
			own.Buffer = n
		case k == "wait" && (v == "auto" || v == "block"):
			own.Wait = v
		default:
			return nil, &fabric.ConfigError{Err: fmt.Errorf("mem: option %s=%q; there are buffer, a number of bytes, and wait, auto or block", k, v)}
		}
	}
	records := []record{own}
	if c.Size > 1 {
		payload, err := json.Marshal(own)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, c.Timeout)
		defer cancel()
		all, err := c.Exchange(ctx, payload)
		if err != nil {
			return nil, fmt.Errorf("mem: finding the other ranks: %w", err)
		}
		records = make([]record, c.Size)
		for r := range records {
			if len(all) != c.Size || json.Unmarshal(all[r], &records[r]) != nil {
				return nil, fmt.Errorf("mem: rank %d opened another fabric than mem", r)
			}
			if records[r].Process != process {
				return nil, fmt.Errorf("mem: rank %d is in another process than rank %d; use shm or tcp", r, c.Rank)
			}
		}
	}
	return join(records).ranks[c.Rank], nil
}

// join returns the world of rank 0's name, made by whoever comes first.
func join(records []record) *world {
	name := records[0].World
	opening.Lock()
	defer opening.Unlock()
	j := opening.worlds[name]
	if j == nil {
		s := settings{buffer: records[0].Buffer, blocking: records[0].Wait == "block"}
		for _, r := range records {
			s.hosts = append(s.hosts, r.Host)
		}
		j = &joining{world: newWorld(s), missing: len(records)}
		if opening.worlds == nil {
			opening.worlds = map[string]*joining{}
		}
		opening.worlds[name] = j
	}
	if j.missing--; j.missing == 0 {
		delete(opening.worlds, name)
	}
	return j.world
}
