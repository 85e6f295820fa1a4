// Package traces keeps the activities of a [driver.Tracer] for drivers whose libraries time the work.
//
//	var slot traces.Slot                                   // of the driver
//	if tr := slot.Load(); tr != nil {                      // when work is enqueued
//		work := tr.Call(op, activity, begin)               // the host's call, and what it enqueues
//		tr.Command(work, times)                            // which the device times
//	}
//
// A function of the host is timed here: [Work.Ran]. A driver that has no trace reads one pointer.
package traces
