"""After the verdict: walk the graph around a culprit, look at values, search again by hand, take a case home."""
