"""Tables that everybody may have: public datasets, bundled pictures, generated visits."""
