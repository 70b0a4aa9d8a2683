"""From a map of how likely each pixel is text to boxes around lines of text.

Liao et al., "Real-time Scene Text Detection with Differentiable Binarization", 2019, section 3.4: pixels above a
threshold, joined into regions; the smallest rectangle around each; grown again, since the model marks the inside of a
line only.
"""

import numpy as np

THRESHOLD = 0.3
"""Likelihood from which on a pixel counts as text."""
BOX_THRESHOLD = 0.5
"""Mean likelihood from which on a box counts."""
GROWTH = 1.6
"""How far boxes are grown, as a factor of area over circumference."""
SMALLEST = 3
"""Pixels of the shorter side of a region that is looked at."""
MOST = 1000


def find(likely):
    """Boxes (corners, 2) of x and y, clockwise from the top left, and their scores; `likely` is (rows, columns)."""
    boxes, scores = [], []
    for points in regions(likely > THRESHOLD)[:MOST]:
        box = smallest_rectangle(points)
        if min(sides(box)) < SMALLEST:
            continue
        score = float(likely[points[:, 1], points[:, 0]].mean())
        if score >= BOX_THRESHOLD:
            boxes.append(in_order(grown(box)))
            scores.append(score)
    return boxes, scores


def regions(mask):
    """The connected regions of a mask, corners counting, as arrays of points (x, y).

    Runs of pixels in a row are joined with those that they touch in the row before (He et al., "A Run-Based Two-Scan
    Labeling Algorithm", 2008).
    """
    padded = np.pad(mask.astype(np.int8), ((0, 0), (1, 1)))
    edges = np.diff(padded, axis=1)
    rows, starts = np.nonzero(edges == 1)
    ends = np.nonzero(edges == -1)[1]
    parents = list(range(len(rows)))

    def root(i):
        while parents[i] != i:
            parents[i] = parents[parents[i]]
            i = parents[i]
        return i

    first = np.searchsorted(rows, np.arange(mask.shape[0] + 1))
    for row in range(1, mask.shape[0]):
        above, here = first[row - 1], first[row]
        while above < first[row] and here < first[row + 1]:
            if starts[above] <= ends[here] and starts[here] <= ends[above]:
                a, b = root(above), root(here)
                parents[max(a, b)] = min(a, b)
            if ends[above] < ends[here]:
                above += 1
            else:
                here += 1
    members = {}
    for i in range(len(rows)):
        members.setdefault(root(i), []).append(i)
    return [np.concatenate([run(rows[i], starts[i], ends[i]) for i in runs]) for runs in members.values()]


def run(row, start, end):
    """The points of a run of pixels."""
    return np.stack([np.arange(int(start), int(end)), np.full(int(end - start), row)], 1)


def hull(points):
    """The convex hull of points (n, 2), counterclockwise (Andrew's monotone chain, 1979)."""
    points = np.unique(points, axis=0)
    if len(points) < 3:
        return points.astype(float)

    def half(sequence):
        chain = []
        for x, y in sequence:
            while len(chain) > 1:
                (ax, ay), (bx, by) = chain[-2:]
                if (bx - ax) * (y - ay) - (by - ay) * (x - ax) > 0:
                    break
                chain.pop()
            chain.append((x, y))
        return chain[:-1]

    ordered = [tuple(p) for p in points.tolist()]
    return np.array(half(ordered) + half(ordered[::-1]), float)


def smallest_rectangle(points):
    """The corners of the rectangle of least area around pixels (n, 2), to their outer edges.

    One of its sides lies along a side of the hull (Freeman and Shapira, 1975).
    """
    # Only the ends of rows can be on the hull.
    order = np.lexsort((points[:, 0], points[:, 1]))
    points = points[order]
    firsts = np.r_[True, points[1:, 1] != points[:-1, 1]]
    lasts = np.r_[firsts[1:], True]
    ends = np.concatenate([points[firsts], points[lasts]])
    corners = np.concatenate([ends + offset for offset in ([0, 0], [1, 0], [0, 1], [1, 1])])
    around = hull(corners)
    along = np.roll(around, -1, axis=0) - around
    units = along / np.linalg.norm(along, axis=1, keepdims=True)
    across = np.stack([-units[:, 1], units[:, 0]], 1)
    u, v = around @ units.T, around @ across.T
    areas = np.ptp(u, axis=0) * np.ptp(v, axis=0)
    best = int(np.argmin(areas))
    low_u, high_u, low_v, high_v = u[:, best].min(), u[:, best].max(), v[:, best].min(), v[:, best].max()
    at = np.array([[low_u, low_v], [high_u, low_v], [high_u, high_v], [low_u, high_v]])
    return at @ np.stack([units[best], across[best]])


def sides(box):
    """The lengths of two sides that meet."""
    return float(np.linalg.norm(box[1] - box[0])), float(np.linalg.norm(box[2] - box[1]))


def grown(box):
    """The rectangle with every side moved outwards."""
    width, height = sides(box)
    distance = width * height * GROWTH / (2 * (width + height))
    right, down = (box[1] - box[0]) / width * distance, (box[2] - box[1]) / height * distance
    return box + np.array([-right - down, right - down, right + down, down - right])


def in_order(box):
    """The corners clockwise (in pixels, where y points down), from the one that is nearest to the top left."""
    centre = box.mean(0)
    angles = np.arctan2(box[:, 1] - centre[1], box[:, 0] - centre[0])
    ordered = box[np.argsort(angles)]
    return np.roll(ordered, -int(np.argmin(ordered.sum(1))), axis=0)


def reading_order(boxes):
    """Indices of boxes line by line, and from left to right in a line: those whose middles are near in height."""
    middles = [box.mean(0) for box in boxes]
    heights = [float(min(sides(box))) for box in boxes]
    lines = []
    for i in sorted(range(len(boxes)), key=lambda i: middles[i][1]):
        if lines and abs(middles[i][1] - middles[lines[-1][0]][1]) < heights[i] / 2:
            lines[-1].append(i)
        else:
            lines.append([i])
    return [i for line in lines for i in sorted(line, key=lambda i: middles[i][0])]
