// Package gemm has the forms of products of matrices. A GPU's block computes a tile of [Side] rows and columns, or of
// other [Sides] if they're tuned. On a processor a block has panels of both matrices, which [Packed] fits to its cores
// and vectors.
package gemm
