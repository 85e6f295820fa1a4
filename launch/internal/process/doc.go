// Package process starts the ranks of a node and what watches over them. It shows what they print, and says how they
// ended. It knows no job.
package process
