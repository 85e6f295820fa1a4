#include "fiber.h"

#include <new>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
asm(R"(
	.text
	.globl emulated_switch_to
	.type emulated_switch_to, @function
emulated_switch_to:
	pushq %rbp
	pushq %rbx
	pushq %r12
	pushq %r13
	pushq %r14
	pushq %r15
	movq %rsp, (%rdi)
	movq (%rsi), %rsp
	popq %r15
	popq %r14
	popq %r13
	popq %r12
	popq %rbx
	popq %rbp
	ret
	.size emulated_switch_to, . - emulated_switch_to
)");
namespace {
constexpr size_t saved = 7; // words at the begin: registers, where to go on, and a word for alignment
constexpr size_t place = 6; // of where to go on
} // namespace
#elif defined(__aarch64__)
asm(R"(
	.text
	.globl emulated_switch_to
	.type emulated_switch_to, %function
emulated_switch_to:
	stp x19, x20, [sp, #-160]!
	stp x21, x22, [sp, #16]
	stp x23, x24, [sp, #32]
	stp x25, x26, [sp, #48]
	stp x27, x28, [sp, #64]
	stp x29, x30, [sp, #80]
	stp d8, d9, [sp, #96]
	stp d10, d11, [sp, #112]
	stp d12, d13, [sp, #128]
	stp d14, d15, [sp, #144]
	mov x9, sp
	str x9, [x0]
	ldr x9, [x1]
	mov sp, x9
	ldp x21, x22, [sp, #16]
	ldp x23, x24, [sp, #32]
	ldp x25, x26, [sp, #48]
	ldp x27, x28, [sp, #64]
	ldp x29, x30, [sp, #80]
	ldp d8, d9, [sp, #96]
	ldp d10, d11, [sp, #112]
	ldp d12, d13, [sp, #128]
	ldp d14, d15, [sp, #144]
	ldp x19, x20, [sp], #160
	ret
	.size emulated_switch_to, . - emulated_switch_to
)");
namespace {
constexpr size_t saved = 19;
constexpr size_t place = 11;
} // namespace
#else
#error "fibers are for amd64 and arm64"
#endif

namespace emulated {

Fiber::Fiber() {
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *p = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED || mprotect(p, page, PROT_NONE) != 0)
		throw std::bad_alloc();
	low = (uintptr_t)p;
	high = low + stack_bytes;
}

Fiber::~Fiber() { munmap((void *)low, stack_bytes); }

void Fiber::begin(void (*main)()) {
	void **top = (void **)(high - 64);
	context.stack = top - 1 - saved; // on amd64 main has the stack of a function that was called
	for (size_t k = 0; k < saved; k++)
		((void **)context.stack)[k] = nullptr;
	((void **)context.stack)[place] = (void *)main;
}

} // namespace emulated
