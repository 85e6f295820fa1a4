// Package observe tells afterwards what the ranks of a job did, and which rank is to blame. It reads what package
// record below it writes: dumps, and answers of running ranks.
//
// [Explain] puts the dumps of all ranks side by side:
//
//	dumps, err := observe.ReadDir("dumps", 256)
//	report := observe.Explain(dumps)
//	fmt.Print(report) // 1. missing: rank 2 is missing from all_reduce(float32[8], sum) #12 of "world" ...
//
// [AskLive] and [AskDumps] ask the ranks of a host, and [NewTop] shows what they do. [WriteTrace] and [WriteTorch]
// write dumps in other forms.
//
// Invariant: what is read from a file or a socket is checked before it's used.
package observe
