// Package deathsig has the kernel kill a process when the thread that has started it ends, on Linux. Elsewhere it does
// nothing: who must not leave processes behind sees to it by other means, as package launch does by its guard.
package deathsig
