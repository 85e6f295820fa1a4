package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
)

// load starts the processes that keep cores busy beside the rounds, and returns what ends them. They end with the
// campaign in any case, since they read from it.
func (c Campaign) load() (end func(), err error) {
	var all []*process
	end = func() {
		for _, p := range all {
			p.in.Close()
		}
		for _, p := range all {
			p.end()
		}
	}
	for range c.Load {
		p, err := start(c.Command)
		if err == nil {
			all = append(all, p)
			if err = p.tasks.Encode(task{Busy: true}); err == nil {
				if _, ok := <-p.answers; !ok {
					err = errors.New("it ended: " + p.errors.String())
				}
			}
		}
		if err != nil {
			end()
			return nil, fmt.Errorf("chaos: a process that keeps a core busy: %w", err)
		}
	}
	return end, nil
}

// busy keeps a core busy until there are no more tasks.
func busy(tasks *json.Decoder) {
	var over atomic.Bool
	go func() {
		defer over.Store(true)
		for tasks.Decode(new(task)) == nil {
		}
	}()
	for !over.Load() {
	}
}
