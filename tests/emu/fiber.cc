#include "fiber.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Most of a stack is never touched, so it costs no memory.  Its top is moved by a few lines from
 * one fiber to the next: otherwise all would use the same sets of the cache. */
enum { GUARD = 64 << 10, STACK = 256 << 10, SHIFT = 192, SHIFTS = 21 };

static char *stacks;

static char *stack_of(int i)
{
    if (!stacks) {
        size_t bytes = (size_t)FIBERS * STACK;
        stacks = (char *)mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
        if (stacks == MAP_FAILED)
            abort();
        for (size_t at = 0; at < bytes; at += STACK)
            if (mprotect(stacks + at, GUARD, PROT_NONE))
                abort();
    }
    return stacks + (size_t)i * STACK;
}

bool fiber_overflow(const void *address)
{
    uintptr_t at = (uintptr_t)address - (uintptr_t)stacks;

    return stacks && at < (uintptr_t)FIBERS * STACK && at % STACK < GUARD;
}

/* -DEMU_UCONTEXT tries what other processors use. */
#if defined(__x86_64__) && !defined(EMU_UCONTEXT)

/* The registers that a call preserves, then the address to go on at.  It is jumped to, not returned
 * to: the processor's stack of return addresses is of another fiber. */
__asm__(".text\n"
        ".globl fiber_switch\n"
        ".type fiber_switch, @function\n"
        "fiber_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    popq %rcx\n"
        "    jmp *%rcx\n"
        ".size fiber_switch, .-fiber_switch\n");

void *fiber_start(int i, void (*entry)())
{
    void **top = (void **)(stack_of(i) + STACK - 64 - i % SHIFTS * SHIFT);

    *--top = nullptr;                   /* entry's return address; the stack is aligned as after a call */
    *--top = (void *)entry;
    for (int r = 0; r < 6; r++)
        *--top = nullptr;
    return top;
}

#elif defined(__aarch64__) && !defined(EMU_UCONTEXT)

__asm__(".text\n"
        ".globl fiber_switch\n"
        ".type fiber_switch, %function\n"
        "fiber_switch:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp, #0]\n    stp x21, x22, [sp, #16]\n    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n    stp x27, x28, [sp, #64]\n    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n    stp d10, d11, [sp, #112]\n    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp, #0]\n    ldp x21, x22, [sp, #16]\n    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n    ldp x27, x28, [sp, #64]\n    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n    ldp d10, d11, [sp, #112]\n    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    br x30\n"
        ".size fiber_switch, .-fiber_switch\n");

void *fiber_start(int i, void (*entry)())
{
    void **top = (void **)(stack_of(i) + STACK - 64 - i % SHIFTS * SHIFT) - 20;

    for (int r = 0; r < 20; r++)
        top[r] = nullptr;
    top[11] = (void *)entry;            /* x30 */
    return top;
}

#else

#include <ucontext.h>

/* Slower: each switch asks the kernel for the signal mask.  *left and `to` are ucontext_t's; that of
 * the host thread, which has no fiber, is the last. */
static ucontext_t contexts[FIBERS + 1];
static ucontext_t *running = &contexts[FIBERS];

void *fiber_start(int i, void (*entry)())
{
    char *stack = stack_of(i) + GUARD;

    getcontext(&contexts[i]);
    contexts[i].uc_stack.ss_sp = stack;
    contexts[i].uc_stack.ss_size = STACK - GUARD - 64 - (size_t)(i % SHIFTS * SHIFT);
    contexts[i].uc_link = nullptr;
    makecontext(&contexts[i], entry, 0);
    return &contexts[i];
}

extern "C" void fiber_switch(void **left, void *to)
{
    ucontext_t *from = running;

    *left = from;
    running = (ucontext_t *)to;
    swapcontext(from, running);
}

#endif
