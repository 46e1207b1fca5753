/* Functions built twice: once for every machine, and once for those with AVX2 registers; which of them is called
 * is decided at program start. For loops over a few integers, of which the results are the same bits either way.
 * Sanitizers cannot have it: they are not up yet when the choice is made. */
#ifndef TESSERA_BASE_WIDE_H
#define TESSERA_BASE_WIDE_H

#include <stdint.h> /* tells whether the C library is glibc, which makes the choice */

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) &&                            \
	!defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WIDE __attribute__((target_clones("default", "avx2"), flatten))
#else
#define WIDE
#endif

#endif
