// Package futex lets a goroutine sleep on, or give its core away for, a word of
// memory that may be shared between processes.
//
// A loop over these calls never keeps the garbage collector from stopping its
// goroutine: [Wait] tells the scheduler that it blocks, and [Yield], which doesn't,
// passes a point at which the goroutine can be stopped.
package futex
