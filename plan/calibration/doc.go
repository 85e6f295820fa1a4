// Package calibration keeps measured values of [plan.Machine], by which algorithms are chosen, in a file of the
// user's cache directory.
//
// `chorus bench --calibrate` measures and writes; a communicator whose setting CHORUS_CALIBRATION says so reads:
//
//	path, err := calibration.Path("on")       // or a path of one's own
//	err = calibration.Store(path, entry)      // replaces the entry for as many ranks
//	entry, err := calibration.Lookup(path, 2) // for a world of 2 ranks
//	m := entry.Machine
//
// # Invariants
//
//   - A file is of one host: its name, processor, number of cores and kernels are in it, and a file of another host,
//     or of another version of the format, is an error that says how to measure anew.
//   - Nothing of a file is used before all of it has been checked.
//   - A file is replaced as a whole, so that a reader meanwhile sees the old or the new one.
//   - Which entry holds depends on nothing but the file and the number of ranks. What the ranks of a communicator must
//     have in common they exchange: package native uses the values of rank 0 on all of them.
package calibration
