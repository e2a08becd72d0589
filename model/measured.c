#include "model/measured.h"

#include <stdlib.h>
#include <string.h>

void measured_device_free(struct measured_device *m)
{
    free(m->store);
    memset(m, 0, sizeof *m);
}
