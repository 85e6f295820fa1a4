// Package library has the vendors' libraries of a device. [Libraries] opens them when they're needed. It asks them for
// [Work] that kernels would do otherwise, for Fourier transforms and for linear algebra. It doesn't ask one again that
// has failed.
package library
