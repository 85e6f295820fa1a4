// Package sys is what Chorus asks of the kernel and the processor beyond what Go's standard library has:
//
//   - processors: which there are ([ReadCPUInfo]), which a thread may use ([AllowedCPUs], [PinThread]), and how they
//     make up cores, sockets and NUMA nodes ([Cores]);
//   - memory: how much there is ([HostMemory]), words that one goroutine stores and others load ([StoreRelaxed]), and
//     [Prefetch];
//   - waits for a word of memory that processes share: [FutexWait], [FutexWake], [Yield], [Backoff], and a way off a
//     core that the awaited process needs ([MigrateOffSharedCore]);
//   - descriptors: a spare one ([SpareFD]), files that may turn out to be no files ([OpenRegular]), sockets that send at
//     full speed ([DisablePacing]), terminals ([IsTerminal]);
//   - files and folders that no other user can change ([ReadOwn], [OwnFolder]);
//   - processes: that end with their parent ([SetDeathSignal]), and the time that a group of them has used
//     ([GroupTime]); signals without their echoes ([Notify]).
//
// For example:
//
//	cpus, err := sys.AllowedCPUs()                       // 0-3
//	cores, err := sys.Cores("/sys/devices/system", cpus) // two, of two hardware threads each
//	cpu := sys.ReadCPUInfo()                             // {Model: "AMD EPYC", Cores: 4}
//	free, total, err := sys.HostMemory()                 // in bytes
//
// It imports neither other packages of Chorus nor package net, so that the lowest ones can use it. On a system that
// lacks something, its function does nothing or returns an error.
package sys
