/* The launcher's reading of an order. Python writes every word of it; a bug there must not become one here. */
#include <stdlib.h>
#include <string.h>

#include "launcher.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t touch(const char *text)
{
    return text ? strlen(text) : 0;
}

static size_t touch_acts(const struct acts *acts)
{
    size_t sum = 0;
    for (size_t i = 0; i < (size_t)acts->count; i++)
        sum += touch(acts->list[i].path) + touch(acts->list[i].value);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct order order;
    static volatile size_t sum;
    const char *why = "";
    char *copy = malloc(size ? size : 1);
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    if (!order_parse(&order, copy, size, &why)) {
        sum += touch(why) + touch(order.tag);
    } else {
        /* What it accepted can be read to its end. */
        sum += touch(order.image) + touch(order.disk) + touch(order.socket) + touch(order.hostname);
        sum += touch(order.tools);
        sum += touch_acts(&order.cgroups) + touch_acts(&order.disks);
        for (size_t i = 0; i < (size_t)order.volume_count; i++)
            sum += touch(order.volumes[i].disk) + touch(order.volumes[i].path);
        for (size_t i = 0; i < (size_t)order.join_count; i++)
            sum += touch(order.joins[i]);
        for (size_t i = 0; i < (size_t)order.mask_count; i++)
            sum += touch(order.masks[i]);
        if (order.base < 65536 || (uint64_t)order.base + order.count > UINT32_MAX)
            abort();                    /* host root must never be part of a sandbox's range */
    }
    free(copy);
    return 0;
}
