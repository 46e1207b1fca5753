/* Must fail under AddressSanitizer: proves that a leak in a Criterion test is not overlooked. */
#include <criterion/criterion.h>
#include <stdlib.h>

static void *volatile sink;

Test(canary, leak)
{
	sink = malloc(42);
	cr_assert(sink != NULL);
	sink = NULL;
}
