/* OPTIONS.md and METRICS.md hold what the tables say. `TESSERA_WRITE_DOCS=1` with this suite writes
 * them anew. */
#include <criterion/criterion.h>

#include "extender/metrics.h"
#include "extender/options.h"
#include "test/lib/docs.h"

Test(extender_docs, options)
{
	docs_expect("extender/OPTIONS.md", ex_options_markdown);
}

Test(extender_docs, metrics)
{
	docs_expect("extender/METRICS.md", ex_metrics_markdown);
}
