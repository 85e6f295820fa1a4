// Command asmgen writes the amd64 assembly of package kern: for AVX-512 and AVX2 the loops, their Go declarations and
// the tables that say which loop serves which operation and element type.
//
// It has its own module, so that its dependencies (avo) are not those of Chorus. Run "go generate" in kern after
// changing it; its test fails when the committed files are not what it writes.
//
// A loop is composed of two independent parts: an [elem] says how elements are loaded, held in registers and stored, a
// [fold] how two registers are combined. The reduction of bfloat16 sums, for instance, is the elem that holds float32
// with the fold that adds float32. Code that functions have in common stands in the files once, as a macro: see share.
package main
