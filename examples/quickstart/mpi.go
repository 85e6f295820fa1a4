//go:build mpi

package main

import _ "github.com/chorus-comms/chorus/comm/mpi" // for CHORUS_BACKEND=mpi
