package record

// Dump is what one rank wrote: a file of JSON in the structure of PyTorch's flight recorder, version [Version], with
// the members chorus beside PyTorch's own.
type Dump struct {
	Chorus  Header           `json:"chorus"`
	Version string           `json:"version"`
	Groups  map[string]Group `json:"pg_config"`
	Entries []Entry          `json:"entries"` // in the order in which they were called

	File string `json:"-"` // the name of the file that it was read from, without what it ends in
}

// Version is that of PyTorch's structure; its analyzer demands the same of all ranks.
const Version = "2.10"

// Format is the version of the members chorus.
const Format = 1

// Header says whose dump it is, and how its communicators stand.
type Header struct {
	Format int    `json:"format"`
	Job    string `json:"job"`
	Rank   int    `json:"rank"`
	Size   int    `json:"size"`
	Host   string `json:"host"`
	Pid    int    `json:"pid"`
	Time   int64  `json:"time_ns"` // since 1970

	Started int64 `json:"started_ns,omitempty"` // when the process began, or loaded the library; since 1970
	Attempt int   `json:"attempt,omitempty"`    // how often the launcher had started the ranks again

	Reason string      `json:"reason"`           // failure, SIGUSR1 or request
	Panics bool        `json:"panics,omitempty"` // its program ends by a panic
	Raised *Raised     `json:"raised,omitempty"` // its Python program ends by an exception
	Comms  []CommState `json:"comms"`
	Stacks string      `json:"stacks"` // of all goroutines, as the Go runtime prints them; cut off if too long

	Threads []Thread `json:"threads,omitempty"` // of a Python program
}

// CommState is where a communicator stands on this rank.
type CommState struct {
	Name     string `json:"name"`
	Rank     int    `json:"rank"`
	Members  []int  `json:"members"`           // ranks of the job, by rank of the communicator
	Recorded uint64 `json:"recorded"`          // operations so far; the dump has the last of them
	Done     uint64 `json:"done"`              // sequence number of the last collective that is done
	Refused  string `json:"refused,omitempty"` // the last call that was refused for its arguments
	// RefusedAt is what Recorded was then.
	RefusedAt uint64   `json:"refused_at,omitempty"`
	Failure   *Failure `json:"failure,omitempty"`
	// Engine has the last calls of the rank's engine, if there is one.
	Engine []EngineCall `json:"engine,omitempty"`
}

// Failure is the first cause of a broken communicator, as its error tells it. Ranks are the communicator's.
type Failure struct {
	Kind    string         `json:"kind"` // a Status
	Message string         `json:"message"`
	Time    int64          `json:"time_ns"`
	Op      string         `json:"op,omitempty"`
	Seq     uint64         `json:"seq,omitempty"`
	Peer    *int           `json:"peer,omitempty"` // the rank that is lost, or that aborted
	Missing []int          `json:"missing,omitempty"`
	Arrived []int          `json:"arrived,omitempty"`
	Refused map[int]string `json:"refused,omitempty"`
	Doing   map[int]string `json:"doing,omitempty"` // of those missing, instead
}

// Ends reports whether the rank's program ends by a panic or an exception.
func (h *Header) Ends() bool { return h.Panics || h.Raised != nil }

// Raised is an exception that ends a Python program.
type Raised struct {
	What string `json:"what"` // "ValueError: no such batch"
	At   Frame  `json:"at"`
}

// Group is a communicator, to PyTorch.
type Group struct {
	Name  string `json:"name"`
	Desc  string `json:"desc"`
	Ranks string `json:"ranks"` // a Python list
}

// Frame is a place in a program. The file is a path; of a Python program's own, from the rank's working directory on if
// it's there.
type Frame struct {
	Name  string `json:"name"`
	File  string `json:"filename"`
	Line  int    `json:"line"`
	Inner bool   `json:"inner,omitempty"` // of Python, PyTorch or Chorus, and not of the program
	Text  string `json:"text,omitempty"`  // the line itself, if it's known
}

// Entry is one operation. Sizes are numbers of elements.
type Entry struct {
	Record       uint64    `json:"record_id"`
	Group        [2]string `json:"process_group"`
	Seq          uint64    `json:"collective_seq_id"`
	P2PSeq       uint64    `json:"p2p_seq_id"`
	Op           uint64    `json:"op_id"`
	Name         string    `json:"profiling_name"`
	Created      int64     `json:"time_created_ns"`
	Started      *int64    `json:"time_discovered_started_ns"`
	Completed    *int64    `json:"time_discovered_completed_ns"` // when it was over, if that was timed, however it ended
	InSizes      [][]int   `json:"input_sizes"`
	InDTypes     []string  `json:"input_dtypes"`
	OutSizes     [][]int   `json:"output_sizes"`
	OutDTypes    []string  `json:"output_dtypes"`
	State        string    `json:"state"` // scheduled, started or completed; what failed has started
	Retired      bool      `json:"retired"`
	PointToPoint bool      `json:"is_p2p"`
	Frames       []Frame   `json:"frames"`
	Chorus       Detail    `json:"chorus"`
}

// Detail is what PyTorch's structure has no place for.
type Detail struct {
	Comm      int    `json:"comm"` // index in Header.Comms
	Op        string `json:"op"`
	Status    string `json:"status"` // a Status
	DType     string `json:"dtype,omitempty"`
	Async     bool   `json:"async,omitempty"`
	Root      int    `json:"root,omitempty"`
	Peer      *int   `json:"peer,omitempty"` // of the communicator; -1: any source
	Tag       int    `json:"tag,omitempty"`
	Reduce    string `json:"reduce,omitempty"`
	Algorithm string `json:"algorithm,omitempty"`
}
