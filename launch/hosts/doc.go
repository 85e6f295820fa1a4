// Package hosts starts the launchers of a job on several hosts, by ssh, and each of them calls [Node]. All that the two
// say to each other goes through the launcher's standard input and output, in frames.
package hosts
