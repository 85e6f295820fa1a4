// Package affinity says which cores a thread may use, and ties threads to one.
//
//	cores := affinity.Cores()             // of the calling thread: [0 1 4 5]
//	err := affinity.Pin(0, cores[rank])   // the calling thread, which should be locked to its goroutine
//
// Only Linux has this. Elsewhere the cores are those of the host, and Pin says so.
package affinity
