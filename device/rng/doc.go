// Package rng holds the random number generators of devices, each giving the numbers that PyTorch gives for the same
// seed.
//
//	g := rng.NewCPU(42)                 // mt19937 and the rules of PyTorch's CPU kernels
//	x := make([]float32, 1000)
//	err := rng.Normal(g, x, 0, 1)       // the bits of torch.manual_seed(42); torch.randn(1000)
//
//	d := rng.NewCUDA(42, rng.H100)      // Philox 4x32-10 and the rules of the CUDA kernels on that GPU
//	err = rng.Uniform(d, x, 0, 1)       // the bits of torch.rand(1000, device="cuda")
//
// A [Generator] is the state of one device. The distributions are functions over a generator and a slice: [Uniform],
// [Normal], [LogNormal], [Exponential], [Cauchy], [Geometric], [Bernoulli], [BernoulliEach], [Random], [Integers] and
// [Permutation]. A slice stands for a contiguous tensor. PyTorch fills a tensor that isn't contiguous in the order of
// its memory, one element at a time.
//
// Exactness, compared with PyTorch 2.13:
//
//   - CPU: everything that is made of integers and of single roundings (uniform, integers, permutations, Bernoulli), in
//     every type. Normal in float32, float16 and bfloat16, too: its short and its vectorized path are both here, the
//     latter as AVX2 builds compute it and as builds do that call the C library (see [Build]).
//   - CPU, other distributions: PyTorch computes in float64 with the C library. Its logarithms and sines and Go's may
//     differ in the last bit. So float64 is within a few units in the last place, and what is rounded to a narrower
//     type differs about once in 10⁸ numbers.
//   - CUDA: uniform, integers and Bernoulli, in every type. The others need the GPU's approximate logarithm and sine;
//     here they are computed more precisely, and are within a few float32 units in the last place of what a GPU gives.
//
// Invariants:
//
//   - A generator may be used by any number of goroutines; one call draws its numbers undisturbed by others.
//   - Filling allocates nothing, and bad parameters draw nothing.
//   - Bits don't depend on the processor this runs on: floating-point operations are fused only where the rule says so.
package rng
