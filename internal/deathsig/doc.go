// Package deathsig has the kernel kill a process when the thread that has started it ends, on Linux. Elsewhere it does
// nothing: a program that must not leave processes behind ensures that by other means, as package launch does by its
// guard.
package deathsig
