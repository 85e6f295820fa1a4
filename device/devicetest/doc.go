// Package devicetest is the suite that every driver of devices must pass: this module's and any other.
//
//	func TestDriver(t *testing.T) {
//		drv, err := mydevice.Open()
//		if err != nil {
//			t.Skip(err)
//		}
//		devicetest.Run(t, drv)
//	}
//
// Each case is a subtest, named after what it checks, such as Events/Versions. At the end a [Report] is logged: by
// group, the cases that passed, the failures with reasons, and the optional interfaces that the driver lacks. Function
// [Check] gives the same without package testing, for a tool that examines a driver in the field.
//
// Invariants:
//
//   - A case proves order by holding work back, never by time; what waits for a driver does so with a deadline
//     ([Patience]), so that a driver that forgets work fails with a message instead of hanging.
//   - A case gives back what it made, and fails if the device's free memory is not what it was.
//   - Cases use one device unless they are about several, and are left out, and said to be, if there is one only.
package devicetest
