package record

import "github.com/chorus-comms/chorus/comm/backend"

// Engines is implemented by backends whose operations an engine beside the memory carries out.
type Engines interface {
	// EngineCalls returns the engine's last calls for this communicator, oldest first; those under way say what they
	// wait for. It may be called from any goroutine at any time.
	EngineCalls() []EngineCall
}

// Attach has the recorder and a communicator's backend tell each other what this rank does.
func (r *Recorder) Attach(b backend.Backend) {
	if r == nil {
		return
	}
	if m, ok := b.(backend.Messenger); ok {
		m.SetDoing(r.Doing)
	}
	if e, ok := b.(Engines); ok {
		r.engine.Store(&e)
	}
}

// EngineCall is a call of an engine, as dumps have it.
type EngineCall struct {
	Op     string `json:"op"`
	Count  uint64 `json:"count"`            // elements
	Began  int64  `json:"began_ns"`         // since 1970; 0 if it's queued
	Cycles uint64 `json:"cycles,omitempty"` // once it's done
	Nanos  int64  `json:"duration_ns,omitempty"`
	Status string `json:"status"`          // "done", "active", or the bits of an error
	Waits  string `json:"waits,omitempty"` // what for, such as "segment 5"
	Peer   *int   `json:"peer,omitempty"`  // of which rank of the communicator; nil: of any
	Since  int64  `json:"waits_since_ns,omitempty"`
}
