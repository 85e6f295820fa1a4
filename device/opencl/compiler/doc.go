// Package compiler has other processes compile sources in OpenCL C, since a driver may crash or hang in its compiler.
//
// Where there's a command whose process has package opencl, each source is compiled there: CHORUS_OPENCL_COMPILER, or
// the one of [Apart]. [Processes] starts such processes, asks them and ends them; [Serve] is what they do. They know
// each other by a variable of the environment and two pipes.
package compiler
